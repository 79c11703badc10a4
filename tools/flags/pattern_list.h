// Patterns of names that flags give, one by one or in files.
#ifndef WEFT_TOOLS_FLAGS_PATTERN_LIST_H_
#define WEFT_TOOLS_FLAGS_PATTERN_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_system.h"

namespace weft {

// Each of `texts` is a pattern, or @FILE: a file with a pattern on each line, where blanks around
// it, empty lines and what follows a '#' at the begin or after a blank do not count. In their
// order. `flag` is for messages ("--freeze"). InvalidArgument for a file without a pattern; what
// FileSystem says of one that cannot be read.
absl::StatusOr<std::vector<std::string>> ReadPatternList(FileSystem& files, const std::string& flag,
                                                         const std::vector<std::string>& texts);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_PATTERN_LIST_H_
