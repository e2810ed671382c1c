"""All nodes: who is under pressure, who fails, who leaks, who died with bytes live, and whether the exporters themselves are well."""
from dashboard import Row, dashboard, dcgm_link, dcgm_variables, datasource_variable, link, variable
from expressions import EXPORTER as E
from expressions import in_each_interval, in_range, or_zero, own_in_each_interval, own_in_range
from panels import (CRITICAL, HIGH, NEVER, NEUTRAL, PRESSURE_MAPPING, PRESSURE_STEPS, SELDOM, USE_STEPS, bargauge, by_name, column, fixed,
                    heatmap, now, of_reasons, pressure_timeline, query, stat, table, thresholds, timeseries)

P = E + ',process=~"$process"'
D = P + ',device=~"$device",uuid=~"$uuid"'
WHO = "instance, host, process, pid, run"
WHO_LEGEND = "{{process}} {{pid}} {{instance}}"
OF_ROW = "&".join(f"var-{name}=${{__data.fields.{name}:percentencode}}" for name in ("instance", "process", "pid", "run"))
OF_SERIES = "&".join(f"var-{name}=${{__field.labels.{name}:percentencode}}" for name in ("instance", "process", "pid", "run"))
HERE = "var-datasource=${datasource}&var-job=${job:percentencode}&${__url_time_range}"
BAR_LEGEND = "{{process}} {{pid}}"
# Of managers of which some have no budget there is no budget of them all: -1, which is shown in words.
BUDGET = (f"sum by ({WHO}) (headroom_budget_bytes{{{D}}}) and "
          f"count by ({WHO}) (headroom_budget_bytes{{{D}}}) == count by ({WHO}) (headroom_claimed_bytes{{{D}}}) "
          f"or 0 * count by ({WHO}) (headroom_budget_bytes{{{D}}}) - 1")
IN_PART = [{"type": "value", "options": {"-1": {"text": "partly unlimited", "index": 0}}}]
USE = f"max by ({WHO}) (headroom_claimed_bytes{{{D}}} / (headroom_budget_bytes{{{D}}} > 0))"


# GPUs. A node exporter asks the driver itself, and its figures are under its own name: what joins them to processes is the UUID, which
# also makes one row of all programs that serve themselves and share a GPU. Only what the driver was asked about has usable bytes.
G = E + ',uuid=~"$uuid",uuid!=""'
ASKED = f"on (job, instance, uuid) headroom_device_usable_bytes{{{G}}}"
GPU_TOTAL = (f"max by (uuid, instance) (headroom_device_total_bytes{{{G}}} and on (job, instance) headroom_node_folders{{{E}}}) "
             f"or on (uuid) max by (uuid) (headroom_device_total_bytes{{{G}}})")
GPU_USABLE = f"max by (uuid) (headroom_device_usable_bytes{{{G}}})"
GPU_OTHERS = (f"clamp_min({GPU_USABLE} - min by (uuid) (headroom_device_free_bytes{{{G}}} and {ASKED}) "
              f"- (sum by (uuid) (headroom_allocated_bytes{{{G}}}) or 0 * {GPU_USABLE}), 0) "
              f"or max by (uuid) (headroom_device_used_outside_bytes{{{G}}} unless {ASKED})")


def to_process(labels):
    return {"title": "This process", "url": f"/d/headroom-process?{HERE}&{labels}", "targetBlank": False}


def variables():
    def known(metric, label, *chosen):
        selector = ",".join(('job="$job"', *chosen))
        return f"label_values(headroom_{metric}{{{selector}}}, {label})"
    chosen = ('instance=~"$instance"', 'process=~"$process"')
    return [
        datasource_variable(),
        variable("job", "Job", "label_values(headroom_exporter_errors_total, job)", "One at a time: a process that is scraped by two "
                 "jobs, by a node exporter and by itself, would count twice.", every=False),
        variable("instance", "Instance", known("exporter_errors_total", "instance"), "The exporters: one a node, or one a process."),
        variable("process", "Process", known("process_up", "process", chosen[0]), "Names of programs."),
        variable("device", "Device", known("allocated_bytes", "device", *chosen), "Index of the GPU as CUDA shows it to the process."),
        variable("uuid", "GPU UUID", known("allocated_bytes", "uuid", *chosen, 'device=~"$device"'), "The GPU itself, whatever index "
                 "processes know it by."),
        *dcgm_variables("$uuid"),
    ]


def at_a_glance():
    return Row("At a glance", (4, [
        stat("Living processes", "That record into a flight file now. Fewer than expected: jobs died, or they write where no exporter "
             "looks (`headroom export --dir`).", now(or_zero(f"sum(headroom_process_up{{{P}}})")), 3, "locale"),
        stat("Exporters down", "Targets of this job that Prometheus could not scrape. What they would say is missing from "
             "every panel here: look at the node, or at Status, Targets in Prometheus.",
             now(or_zero(f"count(up{{{E}}} == 0)", ">= 0")), 3, "locale", NEVER),
        stat("High pressure", "Managers at 95 % of their budget or more. Their next large requests are likely to be refused.",
             now(or_zero(f"count(headroom_pressure_level{{{D}}} >= 3)")), 3, "locale", SELDOM),
        stat("Allocated", "Bytes in live allocations, all processes.", now(or_zero(f"sum(headroom_allocated_bytes{{{D}}})")), 3, "bytes"),
        stat("Failed requests", "In the time that is shown, those of processes that ended since included. See 'Who fails'.",
             now(or_zero(in_range("allocation_failures_total", P))), 3, "locale", SELDOM),
        stat("Failed frees", "In the time that is shown: bugs of programs, or drivers that took nothing back. Anything but 0 deserves "
             "a look.", now(or_zero(in_range("deallocation_failures_total", P))), 3, "locale", NEVER),
        stat("Killed", "Processes that ended without an orderly exit in the time that is shown. Each has left a post-mortem on its node.",
             now(or_zero(own_in_range("processes_died_total", P + ',state="killed"'))), 3, "locale", SELDOM),
        stat("Live when it died", "Bytes that processes held when they ended, of those that ended in the last minutes (`--keep-dead`).",
             now(or_zero(f"sum(headroom_died_live_bytes{{{P}}})")), 3, "bytes", SELDOM),
    ]))


def pressure():
    return Row("Who is under pressure", (9, [
        pressure_timeline("Pressure of processes", "The worst manager of each process that was at medium or above at some time shown. "
                          "High or critical for long: its budget is too small, or its hooks free nothing.",
                          query(f"max by ({WHO}) (headroom_pressure_level{{{D}}}) and on ({WHO}) "
                                f"(max by ({WHO}) (max_over_time(headroom_pressure_level{{{D}}}[$__range] @ end())) >= 2)", WHO_LEGEND),
                          14, no_value="nobody was at medium or above"),
        bargauge("Use of the budget", "The fifteen processes that are closest to a budget of theirs; colours are those of pressure. "
                 "Many at once on one node: the node is too full, not the process.",
                 now(f"topk(15, {USE})", BAR_LEGEND), 10, "percentunit", USE_STEPS, maximum=1, links=[to_process(OF_SERIES)],
                 no_value="no process with a budget"),
    ]), (10, [
        table("Processes", "Every living process with its figures: click on its name to see it alone. Sort by 'failed' or 'used' to find "
              "who needs help.",
              {"allocated": column(f"sum by ({WHO}) (headroom_allocated_bytes{{{D}}})"),
               "peak": column(f"sum by ({WHO}) (headroom_peak_bytes{{{D}}})"),
               "budget": column(BUDGET),
               "used": column(USE),
               "pressure": column(f"max by ({WHO}) (headroom_pressure_level{{{D}}})"),
               "live": column(f"sum by ({WHO}) (headroom_live_allocations{{{D}}})"),
               "failed": column(own_in_range("allocation_failures_total", D, WHO) +
                                f" and on ({WHO}) headroom_process_up{{{P}}} == 1")}, 24, sort="used",
              order=("process", "host", "instance", "pid", "run", *(f"Value #{letter}" for letter in "ABCDEFG")),
              no_value="-",
              overrides=[by_name("process", links=[to_process(OF_ROW)]),
                         by_name("allocated", unit="bytes"), by_name("peak", unit="bytes"),
                         by_name("budget", unit="bytes", noValue="unlimited", mappings=IN_PART),
                         by_name("used", unit="percentunit", min=0, max=1, thresholds=thresholds(USE_STEPS),
                                 custom__cellOptions={"type": "gauge", "mode": "basic", "valueDisplayMode": "color"}),
                         by_name("pressure", mappings=PRESSURE_MAPPING, custom__cellOptions={"type": "color-text"},
                                 thresholds=thresholds(PRESSURE_STEPS)),
                         by_name("live", unit="locale"), by_name("failed", unit="locale")]),
    ]))


def memory():
    return Row("Memory by node, process and GPU", (9, [
        timeseries("Allocated, by node", "Live bytes of all processes of a node, stacked. A step down without a cause is a crash.",
                   query(f"sum by (instance) (headroom_allocated_bytes{{{D}}})", "{{instance}}"), 12, "bytes", stack=True, fill=40),
        timeseries("Allocated, the ten largest programs", "By name over all nodes, those that held the most at some time shown.",
                   query(f"sum by (process) (headroom_allocated_bytes{{{D}}}) and on (process) "
                         f"topk(10, sum by (process) (max_over_time(headroom_allocated_bytes{{{D}}}[$__range] @ end())))", "{{process}}"),
                   12, "bytes", stack=True, fill=40),
    ]), (8, [
        table("GPUs", "Each GPU that an exporter or a process knows: what headroom's processes allocated there together, its memory, and "
              "what is in use by others (contexts, caches of pools, programs without headroom). Where no driver is asked (NVML), free is what "
              "processes last saw. Click on a UUID to see that GPU alone; then the link above leads to it in DCGM.",
              {"total": column(GPU_TOTAL),
               "allocated": column(f'sum by (uuid) (headroom_allocated_bytes{{{D},uuid!=""}})'),
               "others": column(GPU_OTHERS),
               "free": column(f"min by (uuid) (headroom_device_free_bytes{{{G}}} and {ASKED})"),
               "free, last seen": column(f"min by (uuid) (headroom_device_free_bytes{{{G}}} unless {ASKED})"),
               "processes": column("count by (uuid) (count by (uuid, instance, run) "
                                   f'(headroom_allocated_bytes{{{D},uuid!=""}}))')},
              24, sort="allocated", order=("uuid", "instance"), no_value="-",
              overrides=[by_name("uuid", custom__width=400, links=[{"title": "This GPU alone", "targetBlank": False, "url":
                                                 f"/d/headroom-fleet?{HERE}&var-uuid=${{__data.fields.uuid:percentencode}}"}]),
                         by_name("instance", custom__width=180),
                         *(by_name(name, unit="bytes") for name in ("total", "allocated", "others", "free", "free, last seen"))]),
    ]))


def fails():
    return Row("Who fails", (8, [
        timeseries("Failed requests, by program", "In each interval, ended processes included. One program alone: its budget. Many at "
                   "once: a node, or a release.",
                   query(in_each_interval("allocation_failures_total", P, "process") + " > 0", "{{process}}"), 8, "short", style="bars",
                   stack=True, no_value="none failed"),
        timeseries("Failed requests, by reason", "over_budget: a budget said no; device_out_of_memory: the GPU is full, often by others. "
                   "Other reasons are errors of programs or drivers.",
                   query(in_each_interval("allocation_failures_total", P, "reason", "reason") + " > 0", "{{reason}}"), 8, "short",
                   style="bars", stack=True, no_value="none failed", overrides=of_reasons()),
        timeseries("What guards made of it", "Requests that found no memory at first, in each interval: recovered by hooks or policy, or "
                   "given up. Only 'given up' hurts.",
                   [query(in_each_interval("oom_recoveries_total", P, "job") + " > 0", "recovered"),
                    query(in_each_interval("oom_failures_total", P, "job") + " > 0", "given up")], 8, "short", style="bars", stack=True,
                   no_value="no guard ran out of memory",
                   overrides=[by_name("recovered", color=fixed("green")), by_name("given up", color=fixed(CRITICAL))]),
    ]), (8, [
        table("Failures in the time that is shown", "What failed, where and why, ended processes included. 'layer' is who said no: raise "
              "the budget of that layer.",
              {"failed": column(in_range("allocation_failures_total", P, "instance, process, reason, layer", "reason, layer") + " > 0")},
              10, sort="failed", order=("process", "instance", "reason", "layer", "Value"), no_value="none failed",
              overrides=[by_name("failed", unit="locale", custom__width=80)]),
        table("Failed frees in the time that is shown", "double_free, wrong_size, wrong_owner, unknown_pointer and use_after_free "
              "are bugs of that program, told on its stderr; driver: the GPU did not take the memory back.",
              {"failed frees": column(in_range("deallocation_failures_total", P, "instance, process, reason", "reason") + " > 0")},
              8, sort="failed frees", order=("process", "instance", "reason", "Value"), no_value="none failed",
              overrides=[by_name("failed frees", unit="locale", custom__width=100)]),
        timeseries("Bytes in failed frees", "Charged to budgets, and of no use to anybody, until the free is retried or written off.",
                   query(f"sum by (process) (headroom_deallocation_failure_bytes{{{D}}}) > 0", "{{process}}"), 6, "bytes",
                   no_value="none"),
    ]))


def leaks_and_deaths():
    return Row("Who leaks, who died", (8, [
        bargauge("Grows steadily", "Slope of the allocated bytes over the time that is shown, the ten steepest. Choose some hours: a leak "
                 "keeps its place here, a job that fills its cache leaves it.",
                 now(f"topk(10, sum by ({WHO}) (deriv(headroom_allocated_bytes{{{D}}}[$__range])) > 0)", BAR_LEGEND), 8, "binBps",
                 [(None, HIGH)], links=[to_process(OF_SERIES)], no_value="nobody grows"),
        timeseries("Floor of use", "The least that each of the ten largest programs held within a quarter of an hour: what is never given "
                   "back. Use goes up and down; a floor that only rises is a leak.",
                   query(f"sum by (process) (min_over_time(headroom_allocated_bytes{{{D}}}[15m]) and headroom_allocated_bytes{{{D}}}) "
                         f"and on (process) topk(10, sum by (process) (max_over_time(headroom_allocated_bytes{{{D}}}[$__range] @ end())))", "{{process}}"),
                   8, "bytes"),
        timeseries("Live allocations, the ten most", "Numbers that grow while bytes do not: small objects leak.",
                   query(f"sum by (process) (headroom_live_allocations{{{D}}}) and on (process) "
                         f"topk(10, sum by (process) (max_over_time(headroom_live_allocations{{{D}}}[$__range] @ end())))", "{{process}}"),
                   8, "short"),
    ]), (8, [
        table("Died with bytes live", "Processes that ended in the last minutes and held memory then. Killed: read the post-mortem "
              "(`headroom explain FILE` on the node). Exited: it leaves memory to the driver to clean up, a leak if it is not on purpose.",
              {"live": column(f"headroom_died_live_bytes{{{P}}} > 0")}, 12, sort="live", hide=("job",), no_value="nobody",
              order=("process", "host", "instance", "pid", "run", "state", "Value"), overrides=[by_name("live", unit="bytes")]),
        timeseries("Ends of processes", "In each interval, by how they ended: exited in good order, killed, unknown (nobody could tell).",
                   query(own_in_each_interval("processes_died_total", P, "state") + " > 0", "{{state}}"), 6, "short",
                   style="bars", stack=True, no_value="none ended",
                   overrides=[by_name("exited", color=fixed("green")), by_name("killed", color=fixed(CRITICAL)),
                              by_name("unknown", color=fixed("text"))]),
        timeseries("Post-mortems", "Written of killed processes, and those that could not be written: is the folder of `--dump-dir` full "
                   "or not writable?",
                   [query(own_in_each_interval("post_mortems_total", E, "job") + " > 0", "written"),
                    query(own_in_each_interval("post_mortem_failures_total", E, "job") + " > 0", "failed")], 6, "short",
                   style="bars", stack=True, no_value="none",
                   overrides=[by_name("written", color=fixed("green")), by_name("failed", color=fixed(CRITICAL))]),
    ]))


def exporters():
    return Row("The exporters", (8, [
        timeseries("Scrapes, the ten slowest", "How long Prometheus waited for each exporter. Near the scrape timeout: fewer processes, "
                   "tags or managers per node, or a longer timeout.",
                   query(f"topk(10, scrape_duration_seconds{{{E}}})", "{{instance}}"), 6, "s"),
        heatmap("Time to collect and print", "As the exporters themselves measure it. Slower than Prometheus' own figure suggests: the "
                "network, or a node without time.", f"headroom_exporter_scrape_duration_seconds_bucket{{{E}}}", 6, "s"),
        timeseries("Series, the ten largest", "Samples of each scrape. Grows with processes, managers and tags: "
                   "fewer tags help most.",
                   query(f"topk(10, scrape_samples_scraped{{{E}}})", "{{instance}}"), 6, "short"),
        timeseries("Errors of exporters", "A second, by instance: collecting, answering or accepting went wrong. Its log says what.",
                   query(f"sum by (instance) (rate(headroom_exporter_errors_total{{{E}}}[$__rate_interval])) > 0", "{{instance}}"), 6,
                   "ops", colour=fixed(CRITICAL), no_value="none"),
    ]), (8, [
        timeseries("Processes that exporters know", "Living, kept (ended, counters still served), unknown (nobody can tell whether they "
                   "live), folded (living, and beyond the exporter's bound: in sums only). Folded above 0: raise the bound.",
                   query(f"sum by (state) (headroom_node_processes{{{E}}})", "{{state}}"), 6, "short", stack=True, fill=40,
                   no_value="no node exporter",
                   overrides=[by_name("living", color=fixed("green")), by_name("kept", color=fixed("blue")),
                              by_name("unknown", color=fixed("text")), by_name("folded", color=fixed(HIGH))]),
        timeseries("Files and folders not served", "Flight files that could not be served, by reason (truncated, too_many, foreign …), "
                   "and folders that are missing or refused. A refused folder belongs to another user, or others may write to it.",
                   [query(own_in_each_interval("node_files_skipped_total", E, "reason") + " > 0", "file {{reason}}"),
                    query(f'sum by (state) (headroom_node_folders{{{E},state!="watched"}}) > 0', "folder {{state}}")], 6, "short",
                   style="bars", no_value="all served"),
        timeseries("Processes without series of their own", "Found dead before the exporter saw them (in no sum), folded into the sums "
                   "early as too many were kept, and bytes of living ones beyond the bound. All should be 0.",
                   [query(own_in_each_interval("node_processes_found_dead_total", E, "job") + " > 0", "found dead"),
                    query(own_in_each_interval("node_processes_folded_early_total", E, "job") + " > 0", "folded early"),
                    query(f"sum(headroom_node_folded_allocated_bytes{{{E}}}) > 0", "bytes beyond the bound")], 6, "short",
                   no_value="none",
                   overrides=[by_name("bytes beyond the bound", unit="bytes", custom__axisPlacement="right", color=fixed(HIGH))]),
        timeseries("Events refused or lost", "In each interval. Refused by programs, by reason, and lost by readers. Books stay "
                   "right; histories and post-mortems have holes.",
                   [query(in_each_interval("events_refused_total", P, "reason", "reason") + " > 0", "refused: {{reason}}"),
                    query(own_in_each_interval("events_lost_total", P, "job") + " > 0", "lost by readers")], 6, "short",
                   style="bars", stack=True, no_value="none"),
    ]), (6, [
        timeseries("Work of the fleet", "Allocations in each interval, ended processes included: what all the figures above stand for.",
                   query(in_each_interval("allocations_total", P, "process"), "{{process}}"), 12, "short", style="bars", stack=True),
        bargauge("Silent processes", "For how long the ten quietest living processes have recorded nothing. Idle servers are silent; a "
                 "training job that is silent hangs: `headroom ps --threads` on its node.",
                 now(f"topk(10, time() - max by ({WHO}) (headroom_last_activity_timestamp_seconds{{{P}}}) and on ({WHO}) "
                     f"headroom_process_up{{{P}}} == 1)", BAR_LEGEND), 12, "s", NEUTRAL, decimals=0, links=[to_process(OF_SERIES)],
                 no_value="no living process"),
    ]))


def made():
    links = [link("One process", "/d/headroom-process", "Budget, tags, pressure, failures, hooks of one process", with_variables=True),
             dcgm_link()]
    return dashboard("headroom-fleet", "headroom / fleet", "All processes under headroom: who is under pressure, who fails, who leaks, "
                     "who died with bytes live.", variables(), links,
                     [at_a_glance(), pressure(), memory(), fails(), leaks_and_deaths(), exporters()], "now-1h")
