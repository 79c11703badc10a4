// SweepFlags: the options of `train` that make a sweep of it.
#ifndef WEFT_TOOLS_SWEEP_SWEEP_FLAGS_H_
#define WEFT_TOOLS_SWEEP_SWEEP_FLAGS_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace weft {

// Binds flags to itself, so it must outlive the parser's use of it.
class SweepFlags {
 public:
  void Add(CLI::App& app);
  // What the parser cannot see: of `app`, the one of Add with all flags of train, those that go
  // without a sweep or need more. Errors are those of usage.
  absl::Status Check(const CLI::App& app) const;

  bool wanted() const { return !sweeps_.empty(); }
  // ParseSweepAxes reads them.
  const std::vector<std::string>& sweeps() const { return sweeps_; }
  bool selects_best() const { return !select_.empty(); }
  bool ends_early() const { return early_end_ == "median"; }
  // Trials at once; 0 = as many as there are workers for.
  int side_by_side() const { return side_by_side_; }

 private:
  std::vector<std::string> sweeps_;
  std::string select_;
  std::string early_end_ = "median";
  int side_by_side_ = 0;
};

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_SWEEP_FLAGS_H_
