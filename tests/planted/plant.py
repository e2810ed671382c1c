#!/usr/bin/env python3
"""Plants known bugs into a copy of the sources, one at a time, and demands that the named tests go red.

  tests/planted/plant.py            all of them
  tests/planted/plant.py --list     their names
  tests/planted/plant.py NAME…      these

Needs cmake, ninja and a compiler; the models need Relacy. The copy and its build lie in build/planted. Ends with a line
"planted: N found, N missed"; the exit status is 0 only when none was missed.
"""
import os
import pathlib
import shutil
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "planted"


@dataclass(frozen=True)
class Bug:
    name: str
    edits: tuple  # (file, text, what stands there instead); the text must stand there exactly once
    targets: tuple  # what to build
    red: tuple  # commands in the build's folder: green before, red with the bug


def gtest(program, test):
    return [f"bin/{program}", f"--gtest_filter={test}"]


RING_WRITER = "lib/src/flight/ring_writer.hpp"
RING_READER = "lib/src/flight/ring_reader.hpp"
BOOK_READERS = "lib/src/flight/book_readers.hpp"
PROTOCOL = "lib/src/ledger/protocol.hpp"
HOOKS = "lib/src/guard/hook_registry.cpp"
LISTENERS = "lib/src/guard/pressure_listeners.cpp"
# Reports a deadlock and ends, with status 3, where the bug would hang.
SIMULATOR = gtest("stress_guard", "GuardSimulator.random_programs_*")

BUGS = (
    Bug("head_without_release",
        ((RING_WRITER, "Atomics::store_release(head, number + 1)", "Atomics::store_relaxed(head, number + 1)"),),
        ("model_lane",), (["bin/model_lane", "lane.exhaustive"], ["bin/model_lane", "hand_over.random"])),
    Bug("word_without_release",
        ((RING_WRITER, "Atomics::store_release(slot[i], words[i])", "Atomics::store_relaxed(slot[i], words[i])"),),
        ("model_lane",), (["bin/model_lane", "lane.exhaustive"], ["bin/model_lane", "lane.wide"])),
    Bug("validates_against_head",
        ((RING_READER, "auto const reserve_after = Atomics::load_relaxed(reserve_);",
          "auto const reserve_after = Atomics::load_relaxed(head_);"),),
        ("model_lane", "unit_flight"),
        (["bin/model_lane", "lane.exhaustive"],
         gtest("unit_flight", "RingReaderTest.overtaken_between_the_head_load_and_the_second_reserve_load"),
         gtest("unit_flight", "RingReaderTest.a_half_written_record_is_refused_and_the_broken_twins_take_it"))),
    Bug("one_load_of_claim",
        ((BOOK_READERS, """    auto const claim_after = Atomics::load_acquire(claim_word);
    if (claim_after == claim) break;
    claim = claim_after;
""", "    break;\n"),),
        ("model_peak", "unit_flight"),
        (["bin/model_peak", "books_reader.exhaustive"],
         gtest("unit_flight", "BookReaders.a_claim_that_returns_to_its_bytes_still_has_another_version"))),
    Bug("slot_published_before_alloc",
        (("lib/src/manager/allocate.cpp", "  const std::uint64_t alloc_word = ledger.admit(*bytes);",
          """  static_cast<void>(flight::publish_slot(slot, {.address = reinterpret_cast<std::uintptr_t>(block->pointer),
                                                 .bytes = *bytes, .alignment = 256, .stream = 0, .ticks = request.start_ticks,
                                                 .operation = 0, .tag = request.place.entry, .ledger = ledger.record_id(),
                                                 .site = request.site, .thread = thread.thread_id}));
  test_point(TestPoint::allocate_after_slot);
  const std::uint64_t alloc_word = ledger.admit(*bytes);"""),),
        ("unit_ledger",), (gtest("unit_ledger", "Points/AllocatingAtEveryPoint.*"),)),
    Bug("refuses_at_first_sight",
        ((PROTOCOL, "if (again == seen) {\n          return {.outcome", "if (again == seen || again != seen) {\n          return {.outcome"),),
        ("model_claim",), (["bin/model_claim", "claim_limit.exhaustive"],)),
    Bug("looks_then_adds",
        ((PROTOCOL, "if (Atomics::cas_seq_cst(claim_word, seen, seen + kNumberOne + n)) {",
          "Atomics::fetch_add_seq_cst(claim_word, kNumberOne + n);\n      {"),),
        ("model_claim", "unit_ledger", "unit_manager", "stress_manager"),
        (["bin/model_claim", "claim_limit.exhaustive"],
         gtest("unit_ledger", "Claim.checked_against_an_old_limit_fails_its_exchange_and_checks_again"),
         gtest("unit_manager", "Overlay.and_parent_racing_never_exceed_the_common_limit"),
         gtest("stress_manager", "Stress.sixty_four_threads_at_a_limit_of_ten_blocks"),
         gtest("stress_manager", "Stress.each_round_grants_exactly_what_fits"),
         gtest("stress_manager", "Stress.a_moving_budget_is_never_passed_by_a_claim_made_under_it"))),
    Bug("limit_without_version",
        ((PROTOCOL, """    Atomics::store_seq_cst(limit_word, limit);
    Atomics::fetch_add_seq_cst(claim_word, kNumberOne);
""", "    static_cast<void>(claim_word);\n    Atomics::store_seq_cst(limit_word, limit);\n"),),
        ("model_claim",), (["bin/model_claim", "claim_limit.exhaustive"],)),
    Bug("frees_on_their_way_back_forgotten",
        (("lib/src/device/account_room.cpp", "can_fit(bytes, attempt.claim, after.bytes)",
          "can_fit(bytes, attempt.claim, pending_free_bytes())"),),
        ("unit_device",),
        (gtest("unit_device", "DeviceAccountRoom.a_free_that_is_no_longer_pending_and_still_allocated_is_waited_for"),
         gtest("unit_device", "DeviceAccountRoom.a_free_that_is_no_longer_allocated_and_still_claimed_is_waited_for"))),
    Bug("mapped_through_the_lock",
        (("lib/src/flight/flight_file.cpp", "PROT_READ | PROT_WRITE, MAP_SHARED, mapping_fd, 0);",
          "PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);"),),
        ("stress_recorder",), (gtest("stress_recorder", "Alive.is_said_by_a_descriptor_and_not_by_the_mapping"),)),
    # Lock order: the registry's mutex before whatever a hook wants, which others hold when they want the registry's.
    Bug("hook_runs_under_the_registrys_mutex",
        ((HOOKS, "      const FreedHere freed{registry_.ledger_};\n",
          "      const std::scoped_lock planted{registry_.mutex_};\n      const FreedHere freed{registry_.ledger_};\n"),),
        ("stress_guard",), (SIMULATOR,)),
    Bug("listener_told_under_the_lists_mutex",
        ((LISTENERS, "    tell(*entry, change_of(noted));\n",
          "    {\n      const ListLock planted{mutex_};\n      tell(*entry, change_of(noted));\n    }\n"),),
        ("stress_guard",), (SIMULATOR,)),
    Bug("waits_for_a_hook_without_bound",
        ((HOOKS, """    auto until = after(start, entry.hook.time_limit);
    if (context_.deadline) until = std::min(until, *context_.deadline);
""", "    const auto until = steady_clock::time_point::max();\n"),),
        ("stress_guard",), (SIMULATOR,)),
    Bug("free_without_a_wake_up",
        (("lib/src/ledger/booking.cpp", "  test_point(TestPoint::unclaim_before_wake);\n  wake_waiters();\n",
          "  test_point(TestPoint::unclaim_before_wake);\n"),),
        ("stress_guard",), (SIMULATOR,)),
)


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **options)


def copy_sources(source):
    """The tree as it lies here, changed files included; unchanged ones keep their time, so that only the bug is built again."""
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    names = listed.stdout.split("\n") if listed.returncode == 0 else []
    names = [name for name in names if name and (ROOT / name).is_file()]
    if not names:
        sys.exit("plant.py: git lists no sources here: " + listed.stdout.strip())
    for name in names:
        target = source / name
        data = (ROOT / name).read_bytes()
        if target.is_file() and target.read_bytes() == data:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        shutil.copymode(ROOT / name, target)
    kept = set(names)
    for path in sorted(source.rglob("*")):
        if path.is_file() and str(path.relative_to(source)) not in kept:
            path.unlink()


def build(source, targets):
    folder = WORK / "build"
    if not (folder / "build.ninja").is_file():
        configured = run(["cmake", "-S", str(source), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                          "-DHEADROOM_TEST_POINTS=ON", "-DHEADROOM_MODELS=ON"])
        if configured.returncode != 0:
            sys.exit("plant.py: cmake failed:\n" + configured.stdout[-2000:])
    built = run(["cmake", "--build", str(folder), "-j", os.environ.get("HEADROOM_JOBS", str(os.cpu_count())), "--target", *targets])
    return built.returncode == 0, built.stdout[-2000:]


def try_bug(bug, source):
    """One line for each test that stayed green, or for what else went wrong; nothing when the bug was found everywhere."""
    problems = []
    for command in bug.red:
        healthy = run(command, cwd=WORK / "build", timeout=300)
        if healthy.returncode != 0:
            problems.append(f"{' '.join(command)} fails without the bug")
    for name, text, other in bug.edits:
        content = (source / name).read_text(encoding="utf-8")
        if content.count(text) != 1:
            return [f"{name}: expected once, found {content.count(text)} times: {text.strip().splitlines()[0]}"]
        (source / name).write_text(content.replace(text, other), encoding="utf-8")
    good, log = build(source, bug.targets)
    if not good:
        return [f"does not compile:\n{log}"]
    for command in bug.red:
        try:
            stayed_green = run(command, cwd=WORK / "build", timeout=300).returncode == 0
        except subprocess.TimeoutExpired:
            stayed_green = False  # a test that hangs is stopped by ctest as well
        if stayed_green:
            problems.append(f"{' '.join(command)} stays green")
    return problems


def main(arguments):
    if arguments == ["--list"]:
        print("\n".join(bug.name for bug in BUGS))
        return 0
    unknown = set(arguments) - {bug.name for bug in BUGS}
    if unknown:
        print(f"plant.py: found {', '.join(sorted(unknown))}, expected names that --list shows", file=sys.stderr)
        return 2
    source = WORK / "source"
    chosen = [bug for bug in BUGS if not arguments or bug.name in arguments]
    copy_sources(source)
    good, log = build(source, sorted({target for bug in chosen for target in bug.targets}))
    if not good:
        print("plant.py: the sources do not compile without a bug:\n" + log, file=sys.stderr)
        return 1
    missed = 0
    for bug in chosen:
        problems = try_bug(bug, source)
        copy_sources(source)
        # Builds that found a bug must not be what the next one is compared with.
        build(source, bug.targets)
        missed += bool(problems)
        tests = ", ".join(command[-1].removeprefix("--gtest_filter=") for command in bug.red)
        print(f"planted: {bug.name}: " + ("; ".join(problems) if problems else f"found by {tests}"), flush=True)
    print(f"planted: {len(chosen) - missed} found, {missed} missed")
    return 0 if missed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
