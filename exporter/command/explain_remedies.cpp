// What to try: most useful first, as much as there is room for.
#include <algorithm>
#include <utility>

#include <headroom/byte_size.hpp>

#include "command/explain_hooks.hpp"
#include "command/explanation.hpp"
#include "command/output.hpp"

namespace headroom::command {
namespace {

using follow::FailureEnd;

class Advice {
public:
  void add(std::string sentence) {
    if (std::ranges::find(sentences_, sentence) == sentences_.end()) sentences_.push_back(std::move(sentence));
  }
  void say(Prose& prose) const {
    constexpr std::size_t kMost = 3;
    auto const left = kMostSentences > prose.sentences() ? kMostSentences - prose.sentences() : 1;
    for (std::size_t i = 0; i < std::min({sentences_.size(), left, kMost}); ++i) {
      prose.say(i == 0 ? "What to try: " + sentences_[i] : capitalised(sentences_[i]));
    }
  }

private:
  std::vector<std::string> sentences_;
};

void advise_on_budget(follow::FailureStory const& story, Advice& advice) {
  if (story.kind != ErrorKind::over_budget || !story.claimed || !story.limit) return;
  auto const whose = story.layer == Layer::device_account ? std::string{"the device"}
                     : story.ledger_name.empty()          ? std::string{"its manager"}
                                                          : manager_in_prose(story.ledger_name);
  if (story.requested > *story.limit) {
    advice.add("no hook can help here, for the request alone is larger than the budget; ask for less, or set the budget of " +
               whose + " to at least " + format_bytes_exact(story.requested));
    return;
  }
  advice.add("a budget of " + format_bytes_exact(*story.claimed + story.requested) + " for " + whose +
             " would have let this request through");
}

void advise_on_hook(HookSum const& hook, Advice& advice) {
  auto const name = "'" + printable(hook.name) + "'";
  if (hook.throws != 0) {
    advice.add("find out why " + name + " throws");
  } else if (hook.reported > hook.freed && !hook.others_freed()) {
    auto const unless = hook.fall_is_known ? std::string{} : ", unless another thread frees for it";
    advice.add("look at " + name + ": it reports more than it frees to this manager, so it is freeing somewhere else, or later" +
               unless);
  } else if (hook.runs == 0 && hook.large != 0) {
    advice.add("give " + name + " room to run: an emergency reserve of " + format_bytes(hook.overhead) +
               " would do, or a smaller overhead");
  } else if (hook.running != 0 || hook.overran || (hook.runs == 0 && hook.busy != 0)) {
    advice.add("look at why " + name + " takes so long");
  }
}

void advise_on_hooks(Scene const& scene, follow::FailureStory const& story, Advice& advice) {
  for (auto const& hook : sum_up(story)) advise_on_hook(hook, advice);
  auto const was_shortage = story.kind == ErrorKind::over_budget || story.kind == ErrorKind::device_out_of_memory;
  if (!scene.process || !story.hooks.empty() || !was_shortage || story.inside_hook) return;
  auto const then = held_at_failure(scene);
  if (then && !then->tags.empty() && then->tags.front().bytes >= story.requested) {
    advice.add("if any of " + tag_in_prose(then->tags.front().name) +
               " can be given up or moved to the host, register a hook that does it");
  }
}

void advise_on_device(follow::FailureStory const& story, flight::LedgerSnapshot const& ledger, Advice& advice) {
  if (story.kind != ErrorKind::device_out_of_memory || !story.device_free) return;
  if (*story.device_free >= story.requested) {
    advice.add("the device is in splinters: release cached blocks, or allocate what is large and long-lived first");
    return;
  }
  if (ledger.device_outside && *ledger.device_outside != 0) {
    advice.add("see `headroom ps` and nvidia-smi, for " + format_bytes(*ledger.device_outside) +
               " of the device are used outside this program's books, by other processes, contexts and libraries");
  }
  advice.add("a budget that leaves what others use free would have refused earlier, with hooks and a policy still able to act");
}

void advise_on_failure(Scene const& scene, follow::FailureStory const& story, Advice& advice) {
  if (story.end == FailureEnd::recovered) {
    advice.add("nothing is urgent, for the last shortage was mended; but each takes time, and a larger budget would spare it");
    return;
  }
  advise_on_budget(story, advice);
  advise_on_device(story, *scene.ledger, advice);
  advise_on_hooks(scene, story, advice);
  if (!scene.process) {
    advice.add(
        "`headroom replay` with --budget shows where this job would be refused under a budget, and with --hook what hooks "
        "would save");
  }
}

}  // namespace

void explain_remedies(Scene const& scene, Prose& prose) {
  if (scene.ledger == nullptr) return;
  Advice advice;
  auto const has_failed = std::ranges::any_of(scene.model.ledgers(), [](auto const& ledger) { return ledger.failures() != 0; });
  auto const saw_no_shortage = !has_failed && scene.model.source().first_failures().empty();
  if (scene.story) {
    advise_on_failure(scene, *scene.story, advice);
  } else if (scene.process && scene.process->state == "killed" && saw_no_shortage) {
    advice.add(
        "look for who killed it, for headroom saw no shortage of device memory: the kernel's log (`journalctl -k`, for the "
        "host's out-of-memory killer), the scheduler, or a crash of its own");
  }
  if (scene.ledger->failed_frees != 0)
    advice.add("find out why the driver refuses those frees; until then their bytes are lost to the budget");
  advice.say(prose);
}

}  // namespace headroom::command
