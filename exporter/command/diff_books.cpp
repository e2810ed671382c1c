// Who holds memory, by the books of a flight file or a post-mortem.
#include "command/diff_sources.hpp"
#include "command/process_figures.hpp"

namespace headroom::command {

Result<follow::Holdings> holdings_of_books(Source& source, HoldingsOptions const& options) {
  auto const records = source.records();
  if (!records) return tl::unexpected{records.error()};
  auto const managers = process_figures(**records).managers;
  return options.at_peak ? follow::peak_holdings(managers) : follow::holdings_of_books(**records, managers);
}

}  // namespace headroom::command
