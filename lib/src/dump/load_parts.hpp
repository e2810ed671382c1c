// The larger parts of a dump, as snapshots. `top` is the dump itself.
#pragma once

#include <headroom/post_mortem_reader.hpp>

#include "dump/fields.hpp"

namespace headroom::dump {

/// Devices are there already: ledgers name them.
void take_ledgers(Fields const& top, PostMortem& dump);
void take_hooks(Fields const& top, PostMortem& dump);
void take_failure(Fields const& fields, PostMortemFailure& failure);
void take_first_failures(Fields const& top, PostMortem& dump);

}  // namespace headroom::dump
