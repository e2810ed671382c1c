// headroom: the name of a file that is not finished yet, and is gone when the process ends, by a signal too.
//
// From its making on until release() or the destructor, SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM and SIGXCPU unlink the file before
// they end the process as they always do; those that are ignored, as nohup does, or caught by others are left alone. One at a time.
//
// Thread safety: one thread at a time; signals may come to any.
#pragma once

#include <string>

namespace headroom::command {

class TemporaryName {
public:
  TemporaryName() noexcept = default;
  /// Make the file only afterwards: no signal must find it without its name being known here.
  explicit TemporaryName(std::string name);
  TemporaryName(TemporaryName&& other) noexcept;
  TemporaryName& operator=(TemporaryName&& other) noexcept;
  /// Unlinks it.
  ~TemporaryName();

  [[nodiscard]] bool empty() const noexcept { return name_ == nullptr; }
  [[nodiscard]] char const* c_str() const noexcept { return name_ == nullptr ? "" : name_; }
  /// It stays, or is not there.
  void release() noexcept;

private:
  char const* name_ = nullptr;  // lives as long as the process: see kept_names()
};

}  // namespace headroom::command
