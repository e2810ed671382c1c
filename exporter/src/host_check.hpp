// headroom: who may be asked by which name, so that no web page can read a local exporter.
//
// A web page from anywhere may point a name that it controls at 127.0.0.1 and then read, in the browser of somebody who sits at this
// machine, whatever answers there (DNS rebinding); the browser takes it for the page's own server, and no header of ours forbids it. But
// it sends that name along, in Host. So whoever listens on a loopback address alone answers for names that nobody else can own:
// localhost, what ends in .localhost, and IP addresses. Clients without Host (HTTP/1.0) are no browsers. Whoever listens on other
// addresses is meant to be asked by names of all kinds.
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace headroom::exporter {

/// Whether a numeric host is an address of this machine's that nobody else can reach: 127.0.0.0/8, ::1, and the former within IPv6.
[[nodiscard]] bool is_loopback(std::string const& numeric_host) noexcept;

/// Whether a value of the header Host, with or without a port, is an IP address, localhost or a name below it. An empty one is.
[[nodiscard]] bool is_local_name(std::string_view host) noexcept;

}  // namespace headroom::exporter
