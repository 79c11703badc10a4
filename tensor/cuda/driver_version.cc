#include "tensor/cuda/driver_version.h"

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weft {

// The line is "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul ...".
std::string NvidiaDriverVersion(FileSystem& files) {
  const std::string text = files.ReadFile("/proc/driver/nvidia/version").value_or("");
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    const bool is_version = word.find_first_not_of("0123456789.") == absl::string_view::npos &&
                            absl::StrContains(word, ".");
    if (is_version) return std::string(word);
  }
  return "";
}

}  // namespace weft
