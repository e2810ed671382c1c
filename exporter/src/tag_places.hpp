// headroom: at most so many tags of a process have series of their own.
//
// The recorder has that many cells for the tags of all managers together. A file that somebody made up may say that each of its managers
// has them all, and would cost a scrape tens of thousands of series. The tags of the managers that were made first have the places; what
// finds none is added up under "other", manager by manager, so that no byte is lost in the sum.
//
// Thread safety: a pure function. Cost: a sort of what there is.
#pragma once

#include <cstddef>
#include <vector>

#include <headroom/flight_reader.hpp>

namespace headroom::exporter {

inline constexpr std::size_t kTagPlaces = 256;  ///< of one process
inline constexpr char kOtherTag[] = "other";    ///< as the recorder calls its own sum of what found no tag cell

void keep_to_tag_places(std::vector<flight::LedgerSnapshot>& ledgers, std::size_t places = kTagPlaces);

}  // namespace headroom::exporter
