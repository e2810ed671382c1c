// headroom: from one thing that happened to the next, in time. No ImGui.
#pragma once

#include "state.hpp"

namespace headroom::viewer {

/// To the failure after or before the moment shown, whichever ledger it is of, makes it the one that is inspected and chooses its ledger.
/// Stays where there is none. Cost: a copy of the failures that are kept.
void go_to_failure(ViewState& state, bool forward);
/// To the operation of the chosen ledger after or before the moment shown. Cost: a look at its neighbourhood.
void go_to_event(ViewState& state, bool forward);

}  // namespace headroom::viewer
