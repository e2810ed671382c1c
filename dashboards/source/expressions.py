"""PromQL that both dashboards use: what counters counted, so that it is right while processes come and go."""

EXPORTER = 'job="$job",instance=~"$instance"'


def with_exited(metric, selector, labels, modifier=""):
    """A counter of everything that there was, living and ended. What ends leaves its own series and enters the sums of the node
    exporter in one and the same scrape, so this never falls while the exporter lives."""
    both = f"headroom_{metric}|headroom_exited_{metric}"
    by = "job, instance, process" + (f", {labels}" if labels else "")
    return f'sum by ({by}) ({{__name__=~"{both}",{selector}}}{modifier})'


def _begun_since():
    """Programs that serve themselves and began after the scrape of one interval before, or, where nothing was scraped then, within the
    interval (and a minute, in which they were found): what their counters hold is new. A node exporter is not among them, as it begins
    with what lives."""
    before = f"up{{{EXPORTER}}} offset $__interval"
    start = (f"max by (job, instance) (headroom_process_start_time_seconds{{{EXPORTER}}} "
             f"unless on (job, instance) headroom_node_folders{{{EXPORTER}}})")
    return (f"({start} > on (job, instance) timestamp({before}) or "
            f"({start} unless on (job, instance) {before}) > scalar(min_over_time(vector(time())[$__interval:5s])) - 60)")


def growth(now, before):
    """From point to point. Not rate(): of single series it misses what a job of a second did, whose series begins at its last value,
    and of a sum it takes the restart of an exporter for growth. What is new at an exporter that was there before, or in a program that
    was not, began at 0."""
    begun = _begun_since()
    began = f"{now} * 0 and on (job, instance) (up{{{EXPORTER}}} offset $__interval == 1 or {begun})"
    return f"clamp_min({now} - ({before} unless on (job, instance) {begun} or {began}), 0)"


def whole_growth(metric, selector, labels):
    return growth(with_exited(metric, selector, labels), with_exited(metric, selector, labels, " offset $__interval"))


def own_growth(metric, selector):
    """Of a counter that stays with its exporter."""
    series = f"headroom_{metric}{{{selector}}}"
    return growth(series, f"{series} offset $__interval")


def in_each_interval(metric, selector, by, labels=""):
    return f"sum by ({by}) ({whole_growth(metric, selector, labels)})"


def in_range(metric, selector, by="", labels=""):
    """In the time that is shown: the sum of what in_each_interval() shows."""
    return _summed(whole_growth(metric, selector, labels), by)


def own_in_each_interval(metric, selector, by):
    return f"sum by ({by}) ({own_growth(metric, selector)})"


def own_in_range(metric, selector, by=""):
    return _summed(own_growth(metric, selector), by)


def _summed(grown, by):
    over_time = f"sum_over_time({grown}[$__range:$__interval])"
    return f"sum by ({by}) ({over_time})" if by else f"sum({over_time})"


def or_zero(expr, scraped="== 1"):
    """0 where an exporter answers and has nothing to tell; nothing at all where none does, since then nobody knows."""
    return f"{expr} or 0 * count(up{{{EXPORTER}}} {scraped})"
