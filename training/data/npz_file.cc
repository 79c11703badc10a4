#include "training/data/npz_file.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "training/data/data_file.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

constexpr std::string_view kEnding = ".npy";

}  // namespace

absl::StatusOr<NpzFile> NpzFile::Open(FileSystem& files, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(auto file, files.MapFile(path));
  const std::span<const std::byte> bytes = file->bytes();
  const std::string_view text(static_cast<const char*>(static_cast<const void*>(bytes.data())),
                              bytes.size());
  WEFT_ASSIGN_OR_RETURN(ZipArchive archive, ZipArchive::Open(text, path));
  return NpzFile(std::move(file), path, std::move(archive));
}

std::vector<std::string> NpzFile::ArrayNames() const {
  std::vector<std::string> names = archive_.MemberNames();
  for (std::string& name : names) {
    if (absl::EndsWith(name, ".npy")) name.resize(name.size() - kEnding.size());
  }
  return names;
}

bool NpzFile::Has(const std::string& array) const {
  const std::vector<std::string> names = ArrayNames();
  return std::find(names.begin(), names.end(), array) != names.end();
}

absl::StatusOr<Tensor> NpzFile::Read(const std::string& array) const {
  const std::vector<std::string> members = archive_.MemberNames();
  std::string member = array;
  if (member.empty() && members.size() == 1) member = members.front();
  if (member.empty()) {
    return UnreadableData(path_, absl::StrCat("holds ", members.size(), " arrays; name one, as ",
                                              path_, ":NAME: ", absl::StrJoin(members, ", ")));
  }
  if (std::find(members.begin(), members.end(), member) == members.end()) {
    absl::StrAppend(&member, absl::string_view(kEnding.data(), kEnding.size()));
  }
  const std::string name = absl::StrCat(path_, ":", member);
  WEFT_ASSIGN_OR_RETURN(const std::string beginning,
                        archive_.ReadBeginning(member, kArrayHeaderBytes));
  WEFT_ASSIGN_OR_RETURN(const size_t size, ArrayFileBytes(beginning, name));
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, archive_.Read(member, size));
  return ParseNpy(bytes, name);
}

}  // namespace weft
