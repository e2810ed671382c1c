"""One process: what it may use, what it uses and for what, what failed and what was done about it."""
from dashboard import Row, dashboard, dcgm_link, dcgm_variables, datasource_variable, link, variable
from expressions import EXPORTER as E
from expressions import in_each_interval, in_range, or_zero
from panels import (CRITICAL, HIGH, NEVER, PRESSURE_MAPPING, PRESSURE_STEPS, SELDOM, USE_STEPS, by_name, column, fixed, heatmap, line,
                    now, of_reasons, override, pressure_timeline, query, stat, table, timeseries)

P = E + ',process="$process",pid=~"$pid",run=~"$run"'
D = P + ',device=~"$device"'
M = D + ',manager=~"$manager"'
RUN = "instance, host, process, pid, run"
DEVICE = "instance, run, device, uuid"
MANAGER = "instance, run, device, manager"
TOP_TAGS = f"topk(12, sum by (tag) (max_over_time(headroom_tag_allocated_bytes{{{M}}}[$__range] @ end())))"
# Of managers of which some have no budget there is no budget of them all.
BUDGET = f"sum(headroom_budget_bytes{{{M}}}) and count(headroom_budget_bytes{{{M}}}) == count(headroom_claimed_bytes{{{M}}})"
# Its GPUs as the driver knows them, by UUID: a node exporter's figures are under its own name and number. Else as the process saw them.
OF_ITS_GPUS = f'on (job, instance, uuid) headroom_allocated_bytes{{{D},uuid!=""}}'
ASKED = f'on (job, instance, uuid) headroom_device_usable_bytes{{{E},uuid!=""}}'
LIVING = [{"type": "value", "options": {"0": {"text": "ended", "index": 0}}},
          {"type": "range", "options": {"from": 1, "to": None, "result": {"text": "living", "index": 1}}}]  # several runs: their number


def variables():
    def known(label, *chosen):
        return f'label_values(headroom_process_up{{job="$job",{",".join(chosen)}}}, {label})'
    of_job = 'label_values(headroom_allocated_bytes{' + P
    return [
        datasource_variable(),
        variable("job", "Job", "label_values(headroom_process_up, job)", "One at a time: a process that is scraped by two jobs, by "
                 "a node exporter and by itself, would count twice.", every=False),
        variable("instance", "Instance", 'label_values(headroom_process_up{job="$job"}, instance)', "The exporters: one a node, or one "
                 "a process."),
        variable("process", "Process", known("process", 'instance=~"$instance"'), "Name of the program.", every=False),
        variable("pid", "PID", known("pid", 'instance=~"$instance"', 'process="$process"'), "As the process itself sees it: in two "
                 "pods it may be the same."),
        variable("run", "Run", known("run", 'instance=~"$instance"', 'process="$process"', 'pid=~"$pid"'), "One start of the program; "
                 "no two have the same."),
        variable("device", "Device", of_job + "}, device)", "Index of the GPU as CUDA shows it to the process."),
        variable("manager", "Manager", of_job + ',device=~"$device"}, manager)', "A budget of the process: it may have several."),
        variable("uuid", "GPU UUID", f"label_values(headroom_allocated_bytes{{{D}}}, uuid)", "GPUs of the chosen devices.", hidden=True),
        *dcgm_variables("$uuid"),
    ]


def of_device(metric, which="max"):
    return (f'{which} by (uuid) (headroom_device_{metric}_bytes{{{E},uuid!=""}} and {OF_ITS_GPUS}) '
            f'or {which} by (uuid, device) (headroom_device_{metric}_bytes{{{D},uuid=""}})')


def others_on_device():
    usable = f'max by (uuid) (headroom_device_usable_bytes{{{E},uuid!=""}} and {OF_ITS_GPUS})'
    free = f'min by (uuid) (headroom_device_free_bytes{{{E},uuid!=""}} and {ASKED})'
    return (f'clamp_min({usable} - {free} - sum by (uuid) (headroom_allocated_bytes{{{E},uuid!=""}}), 0) '
            f'or max by (uuid, device) (headroom_device_used_outside_bytes{{{D}}} unless {ASKED})')


def at_a_glance():
    return Row("At a glance", (4, [
        stat("State", "Living, or ended and still in the exporter's memory. Ended although it should run: see 'Who died' on the fleet's "
             "dashboard, and ask `headroom explain` for its post-mortem.", now(or_zero(f"sum(headroom_process_up{{{P}}})")), 3, "none",
             [(None, "text"), (1, "green")],
             mappings=LIVING),
        stat("Pressure", "The worst level of its managers: low from 70 % of the budget, medium from 90 %, high from 95 %, critical at "
             "100 %. High for long: raise the budget, or give hooks something to free.",
             now(f"max(headroom_pressure_level{{{M}}})"), 3, "none", PRESSURE_STEPS, mappings=PRESSURE_MAPPING, no_value="unknown"),
        stat("Budget used", "Claimed bytes as a share of the budget, of the manager that is closest to its own. From 95 % on the next "
             "large request is likely to be refused.",
             now(f"max(headroom_claimed_bytes{{{M}}} / (headroom_budget_bytes{{{M}}} > 0))"), 3, "percentunit", USE_STEPS,
             no_value="no budget"),
        stat("Allocated", "Bytes in live allocations, all managers.", now(f"sum(headroom_allocated_bytes{{{M}}})"), 3, "bytes",
             no_value="-"),
        stat("Peak", "High-water mark of the allocated bytes; of several managers the sum of their marks, which they need not have "
             "reached together. Near the budget: there is no room for a larger batch.", now(f"sum(headroom_peak_bytes{{{M}}})"), 3,
             "bytes", no_value="-"),
        stat("Live allocations", "How many there are. Grows all the time while the bytes do not: small objects leak.",
             now(f"sum(headroom_live_allocations{{{M}}})"), 3, "locale", no_value="-"),
        stat("Failed requests", "Requests that failed in the time that is shown, those of ended runs included. See 'Failures' below for "
             "reasons, and `headroom explain` for the last of them in plain words.",
             now(or_zero(in_range("allocation_failures_total", P))), 3, "locale", SELDOM),
        stat("Bytes in failed frees", "Bytes that stay charged since their free failed: a bug of the program (double free, wrong size, wrong "
             "owner) or of the driver. Anything but 0 needs a look at 'Frees that failed'.",
             now(or_zero(f"sum(headroom_deallocation_failure_bytes{{{M}}})")), 3, "bytes", NEVER),
    ]), (5, [
        table("Runs", "Which starts of the program are shown: version, when it began, when it last recorded anything. A "
              "process that lives and has recorded nothing for long hangs, or is idle.",
              {"state": column(f"max by ({RUN}) (headroom_process_up{{{P}}})"),
               "started": column(f"max by ({RUN}) (headroom_process_start_time_seconds{{{P}}}) * 1000"),
               "last activity": column(f"max by ({RUN}) (headroom_last_activity_timestamp_seconds{{{P}}}) * 1000"),
               "info": column(f"max by ({RUN}, version) (headroom_build_info{{{P}}})")}, 24,
              order=("instance", "host", "process", "pid", "run", "version", "Value #A", "Value #B", "Value #C"),
              hide=("Value #D",), no_value="-",
              overrides=[by_name("started", unit="dateTimeAsIso"), by_name("last activity", unit="dateTimeFromNow"),
                         by_name("state", mappings=LIVING)]),
    ]))


def budget_and_use():
    return Row("Budget and use", (11, [
        timeseries("Budget against use, by tag", "Live bytes by allocation tag (the twelve largest in the time that is shown, the rest "
                   "together), against the budget. The gap between the areas and 'claimed' is reserved or on its way to the driver. A "
                   "tag that only grows is the one to look at. No budget line: a manager without a limit is among them or none has one.",
                   [query(f"sum by (tag) (headroom_tag_allocated_bytes{{{M}}}) and on (tag) {TOP_TAGS}", "{{tag}}"),
                    query(f"sum(sum by (tag) (headroom_tag_allocated_bytes{{{M}}}) unless on (tag) {TOP_TAGS})", "all other tags"),
                    query(BUDGET, "budget"),
                    query(f"sum(headroom_claimed_bytes{{{M}}})", "claimed"),
                    query(f"sum(headroom_peak_bytes{{{M}}})", "peak")], 16, "bytes", stack=True, fill=45, legend="table",
                   overrides=[line("budget", CRITICAL, [10, 6]), line("claimed", "text", width=1), line("peak", "purple", [2, 4])]),
        table("Tags now and at the peak", "Who holds what, and who held what when the peak was reached: the first rows of 'at peak' are "
              "what to make smaller if the job shall fit a smaller budget. Allocations count since the process began.",
              {"now": column(f"sum by (tag) (headroom_tag_allocated_bytes{{{M}}})"),
               "at peak": column(f"sum by (tag) (headroom_tag_at_peak_bytes{{{M}}})"),
               "allocations": column(f"sum by (tag) (headroom_tag_allocations_total{{{M}}})")}, 8, sort="at peak",
              order=("tag", "Value #A", "Value #B", "Value #C"), no_value="-",
              overrides=[by_name("now", unit="bytes"), by_name("at peak", unit="bytes"), by_name("allocations", unit="locale")]),
    ]), (4, [
        pressure_timeline("Pressure", "Level of each manager over time. Short bands of orange or red are what hooks and policies are "
                          "for; long ones mean that the budget is too small for the job.",
                          query(f"max by ({MANAGER}) (headroom_pressure_level{{{M}}})", "{{manager}} {{device}} ({{run}})"), 24,
                          no_value="no manager"),
    ]), (8, [
        timeseries("Use of the budget", "Claimed share of each manager's budget; the lines are the bounds of the pressure levels. "
                   "Managers without a budget are left out.",
                   query(f"sum by ({MANAGER}) (headroom_claimed_bytes{{{M}}}) / (sum by ({MANAGER}) (headroom_budget_bytes{{{M}}}) > 0)",
                         "{{manager}} {{device}} ({{run}})"), 8, "percentunit", steps=USE_STEPS, maximum=1.05, no_value="no budget"),
        timeseries("Claimed beyond what is allocated", "Reserved and not yet spent, held back by guards for emergencies (sentinel), and "
                   "above the budget since it was lowered. Unspent reservations that never go are memory nobody can use.",
                   [query(f"sum(headroom_reserved_unspent_bytes{{{M}}}) > 0", "reserved, unspent"),
                    query(f"sum(headroom_sentinel_bytes{{{M}}}) > 0", "sentinel"),
                    query(f"sum(headroom_over_budget_bytes{{{M}}}) > 0", "over the budget")], 8, "bytes", no_value="nothing",
                   overrides=[by_name("over the budget", color=fixed(CRITICAL))]),
        heatmap("How full it was at each allocation", "Claimed share of the budget at each allocation that succeeded. Much weight at the "
                "top: the job lives at its limit; all of it at the bottom: the budget is larger than needed.",
                f"headroom_budget_use_ratio_bucket{{{M}}}", 8, "percentunit", no_value="no allocation under a budget"),
    ]))


def failures():
    return Row("Failures", (8, [
        timeseries("Failed requests, by reason", "Requests that failed in each interval, ended runs included. over_budget: the "
                   "budget said no; device_out_of_memory: the GPU itself is full, often by others (see 'Device'); no other reason should "
                   "be seen in a program that works.",
                   query(in_each_interval("allocation_failures_total", P, "reason", "reason") + " > 0", "{{reason}}"), 8, "short",
                   style="bars", stack=True, no_value="none failed", overrides=of_reasons()),
        timeseries("Failed requests, by layer", "Who refused them, in each interval: the manager's budget, the budget of the whole "
                   "device, the guard, the resource, the driver. What to raise is the budget of the layer that said no.",
                   query(in_each_interval("allocation_failures_total", P, "layer", "layer") + " > 0", "{{layer}}"), 8, "short",
                   style="bars", stack=True, no_value="none failed"),
        timeseries("Frees that failed, by reason", "In each interval. double_free, wrong_size, wrong_owner, unknown_pointer "
                   "and use_after_free are bugs of the program, told on its stderr; driver: the GPU did not take it back.",
                   query(in_each_interval("deallocation_failures_total", P, "reason", "reason") + " > 0", "{{reason}}"), 8, "short",
                   style="bars", stack=True, no_value="none failed"),
    ]), (8, [
        timeseries("What guards did about it", "Requests of guards that found no memory at first, a second: recovered by hooks or by the "
                   "policy, given up, begun to wait, checkpoints. 'given up' is what the program sees as an error.",
                   [query(f"sum(rate(headroom_oom_recoveries_total{{{M}}}[$__rate_interval]))", "recovered"),
                    query(f"sum(rate(headroom_oom_failures_total{{{M}}}[$__rate_interval]))", "given up"),
                    query(f"sum(rate(headroom_oom_waits_total{{{M}}}[$__rate_interval]))", "began to wait"),
                    query(f"sum(rate(headroom_oom_checkpoints_total{{{M}}}[$__rate_interval]))", "checkpoints")], 8, "ops",
                   overrides=[by_name("recovered", color=fixed("green")), by_name("given up", color=fixed(CRITICAL))]),
        timeseries("Asked of each policy", "How often each out-of-memory policy was asked, and with what success, a second. A policy that "
                   "is asked and never recovers anything only costs time.",
                   [query(f"sum by (policy) (rate(headroom_oom_policy_runs_total{{{M}}}[$__rate_interval])) > 0", "{{policy}} asked"),
                    query(f"sum by (policy) (rate(headroom_oom_recoveries_total{{{M}}}[$__rate_interval])) > 0", "{{policy}} recovered")],
                   8, "ops", no_value="no policy was asked",
                   overrides=[override("byRegexp", "/ asked$/", color=fixed("blue")),
                              override("byRegexp", "/ recovered$/", color=fixed("green"))]),
        timeseries("Waiting for room", "Requests that wait now, and time spent waiting in each second: 1 s/s is one thread "
                   "that does nothing else. Waits that end in failures: the wait is too short or nobody frees.",
                   [query(f"sum(headroom_oom_waiters{{{M}}}) > 0", "waiting now"),
                    query(f"sum(rate(headroom_oom_wait_seconds_total{{{M}}}[$__rate_interval])) > 0", "time spent waiting")], 8, "short", no_value="nobody waited",
                   overrides=[by_name("time spent waiting", unit="s", custom__axisPlacement="right")]),
    ]))


def hooks():
    return Row("Hooks", (8, [
        timeseries("Freed by hooks", "Bytes really freed during the runs of each hook, against what it said it freed (dashed), a second. "
                   "Says more than it does: the hook lets go of what others still hold.",
                   [query(f"sum by (hook) (rate(headroom_hook_freed_bytes_total{{{M}}}[$__rate_interval]))", "{{hook}}"),
                    query(f"sum by (hook) (rate(headroom_hook_reported_bytes_total{{{M}}}[$__rate_interval]))", "{{hook}} reported")], 8,
                   "binBps", no_value="no hook",
                   overrides=[override("byRegexp", "/ reported$/", custom__lineStyle={"fill": "dash", "dash": [6, 6]},
                                       custom__fillOpacity=0)]),
        timeseries("Runs of hooks", "Runs a second, and turns that ended badly: skipped since there was too little memory for the hook "
                   "(overhead) or it ran elsewhere for too long (busy), ended by an exception, took longer than its limit.",
                   [query(f"sum by (hook) (rate(headroom_hook_runs_total{{{M}}}[$__rate_interval]))", "{{hook}}"),
                    query(f"sum by (hook, reason) (rate(headroom_hook_skips_total{{{M}}}[$__rate_interval])) > 0",
                          "{{hook}} skipped: {{reason}}"),
                    query(f"sum by (hook) (rate(headroom_hook_errors_total{{{M}}}[$__rate_interval])) > 0", "{{hook}} exceptions"),
                    query(f"sum by (hook) (rate(headroom_hook_overruns_total{{{M}}}[$__rate_interval])) > 0", "{{hook}} overruns")], 8,
                   "ops", no_value="no hook",
                   overrides=[override("byRegexp", "/ (exceptions|overruns)$/", color=fixed(CRITICAL)),
                              override("byRegexp", "/ skipped: /", color=fixed(HIGH))]),
        timeseries("Time in hooks", "Mean duration of the runs that ended, and how long the present run has been going on (dashed). A request waits "
                   "for as long as its hooks run; a present run that only grows is a hook that hangs.",
                   [query(f"sum by (hook) (rate(headroom_hook_duration_seconds_sum{{{M}}}[$__rate_interval])) / "
                          f"(sum by (hook) (rate(headroom_hook_duration_seconds_count{{{M}}}[$__rate_interval])) > 0)", "{{hook}}"),
                    query(f"max by (hook) (headroom_hook_running_seconds{{{M}}}) > 0", "{{hook}} running now")], 8, "s", no_value="no hook ran",
                   overrides=[override("byRegexp", "/ running now$/", color=fixed(HIGH), custom__lineStyle={"fill": "dash", "dash": [6, 6]})]),
    ]))


def allocations():
    return Row("Allocations", (8, [
        timeseries("Allocations and frees", "A second. Allocations above frees for long: the number of live allocations grows.",
                   [query(f"sum(rate(headroom_allocations_total{{{M}}}[$__rate_interval]))", "allocations"),
                    query(f"sum(rate(headroom_frees_total{{{M}}}[$__rate_interval]))", "frees")], 8, "ops"),
        timeseries("Bytes allocated and freed", "A second. Much churn of large blocks costs time in the driver: a pool or a reservation "
                   "would help.",
                   [query(f"sum(rate(headroom_allocation_bytes_total{{{M}}}[$__rate_interval]))", "allocated"),
                    query(f"sum(rate(headroom_deallocation_bytes_total{{{M}}}[$__rate_interval]))", "freed")], 8, "binBps"),
        timeseries("Live allocations", "How many there are, and how many of them found no slot in the table of allocations (their bytes "
                   "count all the same, but nothing can name them). Grows without end: a leak of small blocks.",
                   [query(f"sum(headroom_live_allocations{{{M}}})", "live"),
                    query(f"sum(headroom_live_untracked{{{M}}}) > 0", "without a slot")], 8, "short",
                   overrides=[by_name("without a slot", color=fixed(HIGH))]),
    ]), (9, [
        heatmap("Sizes of allocations", "How many allocations of each size. A band that appears with a new version is worth a question.",
                f"headroom_allocation_size_bytes_bucket{{{M}}}", 8, "bytes", no_value="no allocation"),
        heatmap("Durations of allocations", "From request to memory. Microseconds are the pool; milliseconds are the driver; more is "
                "waiting, or hooks.", f"headroom_allocation_duration_seconds_bucket{{{M}}}", 8, "s", no_value="no allocation"),
        heatmap("Durations of hooks", "Of the runs that ended.", f"headroom_hook_duration_seconds_bucket{{{M}}}", 8, "s",
                no_value="no hook ran"),
    ]))


def in_flight_and_device():
    return Row("In flight, and the device", (8, [
        timeseries("Operations in flight", "Threads that are in the middle of an operation. Nearly always 0 at a scrape; a number that "
                   "stays is that many threads that hang.",
                   query(f"sum by (operation) (headroom_inflight_operations{{{M}}}) > 0", "{{operation}}"), 6, "short",
                   stack=True, no_value="none at any scrape"),
        timeseries("Oldest operation in flight", "For how long it has been running. Beyond a minute the driver hangs, or a hook does: "
                   "`headroom ps --threads` says which thread it is and what it waits for.",
                   query(f"max by (operation) (headroom_inflight_oldest_seconds{{{M}}}) > 0", "{{operation}}"), 6, "s",
                   no_value="none at any scrape", steps=[(None, "text"), (60, CRITICAL)], least_top=1),
        timeseries("Device memory", "The device's memory as the driver knows it, or as the program last saw it: usable, free, and in use by "
                   "others than headroom's processes. Others grow: it is not this process that will run out first, but it will suffer.",
                   [query(of_device("total"), "total {{device}} {{uuid}}"),
                    query(of_device("usable"), "usable {{device}} {{uuid}}"),
                    query(of_device("free", "min"), "free {{device}} {{uuid}}"),
                    query(others_on_device(), "others {{device}} {{uuid}}"),
                    query(of_device("driver_reserved"), "driver {{device}} {{uuid}}")], 6, "bytes",
                   no_value="unknown: no NVML, and the program has not looked",
                   overrides=[override("byRegexp", f"/^{name} /", color=fixed(colour)) for name, colour in (
                       ("total", "text"), ("usable", "blue"), ("free", "green"), ("others", HIGH), ("driver", "purple"))]),
        timeseries("Budget of the device", "What the managers of one device share, if the program set such a budget; and bytes freed on "
                   "a stream that the device does not have back yet. Pending bytes that stay: nobody waits for that stream.",
                   [query(f"sum by ({DEVICE}) (headroom_device_budget_bytes{{{D}}})", "budget {{device}}"),
                    query(f"sum by ({DEVICE}) (headroom_device_claimed_bytes{{{D}}})", "claimed {{device}}"),
                    query(f"sum by ({DEVICE}) (headroom_device_account_pending_free_bytes{{{D}}})", "pending free {{device}}")], 6,
                   "bytes", no_value="no budget of a whole device",
                   overrides=[override("byRegexp", "/^budget/", color=fixed(CRITICAL),
                                       custom__lineStyle={"fill": "dash", "dash": [10, 6]}, custom__fillOpacity=0)]),
    ]))


def recorder():
    return Row("The recorder", (7, [
        timeseries("Events recorded", "Written into the flight file, a second. The books do not depend on them.",
                   query(f"sum(rate(headroom_events_recorded_total{{{P}}}[$__rate_interval]))", "recorded"), 8, "ops"),
        timeseries("Events refused or lost", "Refused: not written (no lane for the thread, within a signal handler or hook of the "
                   "recorder, before the start). Lost: this exporter's reader was too slow. Bytes and counts stay right; histories have "
                   "holes.",
                   [query(f"sum by (reason) (rate(headroom_events_refused_total{{{P}}}[$__rate_interval])) > 0", "refused: {{reason}}"),
                    query(f"sum(rate(headroom_events_lost_total{{{P}}}[$__rate_interval])) > 0", "lost by the reader")], 8, "ops",
                   no_value="none"),
        timeseries("Lanes and folded tags", "Lanes that threads hold: at the limit new threads record no events. Tags that found no cell "
                   "and count as 'other': too many names, perhaps made at run time.",
                   [query(f"sum(headroom_lanes_in_use{{{P}}})", "lanes in use"),
                    query(f"sum(headroom_tags_folded_total{{{P}}}) > 0", "tags folded")], 8, "short"),
    ]))


def made():
    links = [link("Fleet", "/d/headroom-fleet", "All nodes and processes"), dcgm_link()]
    return dashboard("headroom-process", "headroom / process", "One process under headroom: budget against use, pressure, failures, "
                     "hooks.", variables(), links,
                     [at_a_glance(), budget_and_use(), failures(), hooks(), allocations(), in_flight_and_device(), recorder()], "now-30m")
