// Which libraries of custom ops this process has loaded (op_library.h loads them).
#ifndef WEFT_OPS_CUSTOM_LOADED_LIBRARIES_H_
#define WEFT_OPS_CUSTOM_LOADED_LIBRARIES_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "ops/custom_op.h"

namespace weft {

// A loaded library of custom ops.
struct OpLibrary {
  std::string path;      // absolute, as it was loaded
  std::string checksum;  // of the file's content, 16 hexadecimal digits
  // Full names, "example::Square", of those that the policy of operators allows.
  std::vector<std::string> ops = {};
  std::vector<std::string> forbidden = {};  // those that it does not allow: they stay unknown
  // Its code runs in a process of its own (ops/custom/isolation), which may take `op_timeout` for
  // one call; zero: as long as it wants.
  bool is_isolated = false;
  absl::Duration op_timeout = absl::ZeroDuration();
};

// For the loader. Ops of the description that `library` does not name stay unknown. `description`
// lives as long as the process. Thread-safe, as all of these.
void AddLoadedLibrary(OpLibrary library, const WeftOpLibrary& description);

// Those loaded so far, in order.
std::vector<OpLibrary> LoadedOpLibraries();

// "swiglu.so 0123456789abcdef", file name and checksum, of each; for comparing processes.
std::vector<std::string> OpLibraryIdentities();

// The descriptor of a loaded op; null when there is none. Lives as long as the process.
const WeftOpDescriptor* FindCustomOp(const std::string& domain, const std::string& name);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_LOADED_LIBRARIES_H_
