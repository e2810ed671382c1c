// One ledger word under contention: the part of the design that does not scale, by itself.
#include "base/atomics.hpp"
#include "ledger/protocol.hpp"
#include "timing.hpp"

namespace headroom::bench {
namespace {

using Steps = ledger::Protocol<StdAtomics>;

alignas(64) flight::Word claim_word{0};
alignas(64) flight::Word alloc_word{0};
alignas(64) flight::Word limit_word{ledger::pack_limit(std::uint64_t{1} << 40, true, false)};

void ledger_claim_release(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(Steps::claim(claim_word, limit_word, 1024));
    Steps::give_back(claim_word, 1024);
  }
}
BENCHMARK(ledger_claim_release)->Apply(all_thread_counts);

void ledger_claim_admit_retire_release(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(Steps::claim(claim_word, limit_word, 1024));
    benchmark::DoNotOptimize(Steps::admit(alloc_word, 1024));
    benchmark::DoNotOptimize(Steps::retire(alloc_word, 1024));
    Steps::give_back(claim_word, 1024);
  }
}
BENCHMARK(ledger_claim_admit_retire_release)->Apply(all_thread_counts);

}  // namespace
}  // namespace headroom::bench
