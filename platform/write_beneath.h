// Replaces a file below a folder that its path cannot leave.
#ifndef WEFT_PLATFORM_WRITE_BENEATH_H_
#define WEFT_PLATFORM_WRITE_BENEATH_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weft {

// As FileSystem::WriteFileAtomically, for a path that comes from somebody we do not trust: it is
// taken relative to `directory` and cannot leave it, as in FileSystem::MapFileBeneath. No link is
// followed, not even one that is made while this runs. InvalidArgument for a path that leaves the
// folder or goes through a link, and where something is there that is no regular file.
absl::Status WriteFileBeneath(const std::string& directory, const std::string& relative_path,
                              std::string_view bytes);

}  // namespace weft

#endif  // WEFT_PLATFORM_WRITE_BENEATH_H_
