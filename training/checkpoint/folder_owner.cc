#include "training/checkpoint/folder_owner.h"

#include <optional>
#include <random>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "distributed/coordinator_epoch.h"

namespace weft {
namespace {

constexpr char kOwnerName[] = "coordinator";
constexpr int64_t kMaxOwnerBytes = 1024;

struct Owner {
  uint64_t epoch = 0;
  uint64_t unique = 0;
};

// "epoch 3 of 0123456789abcdef\n"
std::string OwnerText(const Owner& owner) {
  return absl::StrFormat("epoch %d of %016x\n", owner.epoch, owner.unique);
}

std::optional<Owner> ParseOwner(const std::string& text) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::StripSuffix(text, "\n"), ' ', absl::SkipEmpty());
  Owner owner;
  if (words.size() != 4 || words[0] != "epoch" || words[2] != "of") return std::nullopt;
  if (!absl::SimpleAtoi(words[1], &owner.epoch)) return std::nullopt;
  if (!absl::SimpleHexAtoi(words[3], &owner.unique)) return std::nullopt;
  return owner;
}

std::optional<Owner> ReadOwner(FileSystem& files, const std::string& path) {
  if (!files.Exists(path)) return std::nullopt;
  const absl::StatusOr<std::string> text = files.ReadFileUpTo(path, kMaxOwnerBytes);
  return text.ok() ? ParseOwner(*text) : std::nullopt;
}

uint64_t UniqueOwner() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

FolderOwner::FolderOwner(FileSystem& files, std::string folder)
    : files_(files), folder_(std::move(folder)), unique_(UniqueOwner()) {}

std::string FolderOwner::Path() const { return absl::StrCat(folder_, "/", kOwnerName); }

uint64_t FolderOwner::Epoch() {
  const std::optional<Owner> owner = ReadOwner(files_, Path());
  return owner.has_value() ? owner->epoch : 0;
}

absl::Status FolderOwner::Claim(uint64_t epoch) {
  const absl::Status written = files_.WriteFileAtomically(Path(), OwnerText({epoch, unique_}));
  if (written.ok()) epoch_ = epoch;
  return written;
}

absl::Status FolderOwner::Check() const {
  if (epoch_ == 0) return absl::OkStatus();
  const std::optional<Owner> owner = ReadOwner(files_, Path());
  if (!owner.has_value() || owner->unique == unique_) return absl::OkStatus();
  return DeposedError(epoch_, owner->epoch, absl::StrCat("the folder ", folder_));
}

}  // namespace weft
