#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <headroom/follow.hpp>

namespace headroom::follow {
namespace {

/// For certain: not where nobody may look.
bool is_gone(std::string const& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found;
}

}  // namespace

Fleet::Fleet(std::vector<std::string> folders, Options const& options) : folders_{std::move(folders)}, options_{options} {}

std::span<Fleet::Member> Fleet::members() noexcept { return members_; }
std::span<std::string const> Fleet::problems() const noexcept { return problems_; }

Result<void> Fleet::poll() {
  problems_.clear();
  std::vector<flight::FoundFlight> found;
  std::optional<Error> unreadable;
  for (auto const& folder : folders_) {
    auto in_folder = flight::find_flights(folder);
    if (!in_folder) {
      problems_.push_back(in_folder.error().to_string());
      unreadable = std::move(in_folder.error());
      continue;
    }
    std::ranges::move(*in_folder, std::back_inserter(found));
  }
  if (unreadable && problems_.size() == folders_.size()) return tl::unexpected{std::move(*unreadable)};

  std::vector<Member> members;
  for (auto const& file : found) {
    auto const known = std::ranges::find(members_, file.path, &Member::path);
    if (known != members_.end()) {
      members.push_back(std::move(*known));
      members_.erase(known);
      continue;
    }
    auto model = Model::open_flight(file.path, options_);
    if (!model) {
      // A process that ends while we look takes its file along: nothing to complain about.
      if (!is_gone(file.path)) problems_.push_back(model.error().to_string());
      continue;
    }
    members.push_back({.path = file.path, .model = std::move(*model)});
  }
  members_ = std::move(members);
  for (auto& member : members_) {
    if (auto polled = member.model.poll(); !polled) problems_.push_back(polled.error().to_string());
  }
  return {};
}

}  // namespace headroom::follow
