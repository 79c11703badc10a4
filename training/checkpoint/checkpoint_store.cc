#include "training/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kPrefix[] = "step-";
constexpr char kDamaged[] = ".damaged";
constexpr char kSuspect[] = ".suspect";

std::string NameOf(int64_t step) { return absl::StrFormat("%s%08d", kPrefix, step); }

// Of "step-00000100"; nothing for other names.
std::optional<int64_t> StepOf(const std::string& name) {
  if (!absl::StartsWith(name, kPrefix)) return std::nullopt;
  int64_t step = 0;
  if (!absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &step) || step < 0) return std::nullopt;
  if (NameOf(step) != name) return std::nullopt;
  return step;
}

// ".step-00000200-0123456789abcdef.tmp".
bool IsTemporary(const std::string& name) {
  return absl::StartsWith(name, absl::StrCat(".", kPrefix)) && absl::EndsWith(name, ".tmp");
}

}  // namespace

std::string CheckpointStore::PathOf(int64_t step) const {
  return absl::StrCat(root_, "/", NameOf(step));
}

absl::StatusOr<std::vector<int64_t>> CheckpointStore::Steps() {
  std::vector<int64_t> steps;
  if (!files_.Exists(root_)) return steps;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.ListDirectory(root_));
  for (const std::string& name : names) {
    if (const std::optional<int64_t> step = StepOf(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<std::vector<std::string>> CheckpointStore::CleanUp() {
  std::vector<std::string> removed;
  if (!files_.Exists(root_)) return removed;
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.ListDirectory(root_));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(root_, "/", name);
    // An index is the first that is removed of a checkpoint.
    const bool half_removed =
        StepOf(name).has_value() && !files_.Exists(absl::StrCat(path, "/", kCheckpointIndexName));
    if (!IsTemporary(name) && !half_removed) continue;
    WEFT_RETURN_IF_ERROR(folders_.Remove(path));
    removed.push_back(path);
  }
  return removed;
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointStore::OpenNewest(
    std::vector<std::string>& notes) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps());
  for (size_t i = steps.size(); i-- > 0;) {
    const std::string path = PathOf(steps[i]);
    absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(files_, path);
    absl::Status status = checkpoint.status();
    if (status.ok()) status = checkpoint->Verify();
    if (status.ok()) return std::optional<Checkpoint>(*std::move(checkpoint));
    // Of another version, or not to be read at all: not for us to set aside.
    if (!absl::IsDataLoss(status) && !absl::IsNotFound(status)) return status;
    WEFT_ASSIGN_OR_RETURN(const std::string aside, SetAside(path, kDamaged));
    notes.push_back(absl::StrCat("the checkpoint of step ", steps[i], " is damaged (",
                                 std::string(status.message()), "); it was set aside as \"",
                                 absl::Utf8SafeCEscape(aside), "\""));
  }
  return std::optional<Checkpoint>();
}

absl::StatusOr<std::string> CheckpointStore::SetAside(const std::string& path, const char* suffix) {
  std::string aside = absl::StrCat(path, suffix);
  WEFT_RETURN_IF_ERROR(folders_.Remove(aside));
  WEFT_RETURN_IF_ERROR(folders_.Rename(path, aside));
  return aside;
}

absl::StatusOr<std::vector<int64_t>> CheckpointStore::SetAsideAfter(int64_t step) {
  WEFT_ASSIGN_OR_RETURN(std::vector<int64_t> steps, Steps());
  std::erase_if(steps, [step](int64_t one) { return one <= step; });
  for (const int64_t one : steps) {
    WEFT_RETURN_IF_ERROR(SetAside(PathOf(one), kSuspect).status());
  }
  return steps;
}

absl::StatusOr<std::string> CheckpointStore::Begin(int64_t step, uint64_t unique) {
  const std::string folder = absl::StrFormat("%s/.%s-%016x.tmp", root_, NameOf(step), unique);
  WEFT_RETURN_IF_ERROR(folders_.Remove(folder));
  WEFT_RETURN_IF_ERROR(files_.CreateDirectories(folder));
  return folder;
}

absl::Status CheckpointStore::Commit(const std::string& folder, const CheckpointIndex& index) {
  for (const CheckpointFile& file : index.files) {
    const auto mapped = files_.MapFileBeneath(folder, file.name);
    if (mapped.ok() && static_cast<int64_t>((*mapped)->size()) == file.bytes) continue;
    return absl::NotFoundError(absl::StrCat(
        "a worker has written \"", absl::Utf8SafeCEscape(folder), "/", file.name, "\" (",
        file.bytes,
        " bytes), and here it is not; the folder must be one that the hosts of all workers share"));
  }
  WEFT_RETURN_IF_ERROR(
      files_.WriteFileAtomically(absl::StrCat(folder, "/", kCheckpointIndexName), index.ToJson()));
  const std::string path = PathOf(index.step);
  // A later coordinator of the job removes what this one has not finished (CleanUp): its own
  // checkpoint of the same step stays.
  if (!files_.Exists(folder)) {
    return absl::NotFoundError(
        absl::StrCat("\"", absl::Utf8SafeCEscape(folder), "\" was removed by another process"));
  }
  WEFT_RETURN_IF_ERROR(folders_.Remove(path));
  return folders_.Rename(folder, path);
}

void CheckpointStore::Abandon(const std::string& folder) { folders_.Remove(folder).IgnoreError(); }

absl::Status CheckpointStore::Prune(int keep) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps());
  const size_t kept = std::min(steps.size(), static_cast<size_t>(std::max(keep, 1)));
  for (size_t i = 0; i + kept < steps.size(); ++i) {
    const std::string path = PathOf(steps[i]);
    const std::string index = absl::StrCat(path, "/", kCheckpointIndexName);
    // Without its index it is none, whatever else is left of it.
    if (files_.Exists(index)) WEFT_RETURN_IF_ERROR(files_.RemoveFile(index));
    WEFT_RETURN_IF_ERROR(folders_.Remove(path));
  }
  return absl::OkStatus();
}

}  // namespace weft
