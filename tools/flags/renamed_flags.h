// Flags that have another name now. Command lines and job files refuse the former name with the
// new one.
#ifndef WEFT_TOOLS_FLAGS_RENAMED_FLAGS_H_
#define WEFT_TOOLS_FLAGS_RENAMED_FLAGS_H_

#include <string>

namespace weft {

// The name of today of a flag, both with their dashes ("--run-history"); empty for a flag that was
// not renamed. Thread-safe.
std::string RenamedTo(const std::string& flag);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_RENAMED_FLAGS_H_
