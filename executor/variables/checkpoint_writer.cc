#include "executor/variables/checkpoint_writer.h"

#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

double SecondsSince(Clock& clock, int64_t begin) {
  return static_cast<double>(clock.MonotonicNanos() - begin) * 1e-9;
}

void AddUpdated(const Graph& graph, std::set<std::string>& names) {
  for (const Variable& variable : graph.variables()) {
    if (variable.update.valid()) names.insert(variable.name);
  }
}

}  // namespace

std::vector<std::string> CheckpointedVariables(const Partition& partition) {
  std::set<std::string> updated;
  AddUpdated(partition.begin, updated);
  for (const Graph& graph : partition.micro) AddUpdated(graph, updated);
  AddUpdated(partition.end, updated);
  std::vector<std::string> names;
  for (const VariableShard& shard : partition.variables) {
    if (shard.is_primary && updated.contains(shard.name)) names.push_back(shard.name);
  }
  return names;
}

CheckpointWriter::CheckpointWriter(FileSystem& files, Clock& clock, VariableStore& variables,
                                   RankId rank)
    : files_(files), clock_(clock), variables_(variables), rank_(rank) {}

CheckpointWriter::~CheckpointWriter() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

absl::Status CheckpointWriter::Add(const std::vector<std::string>& variables) {
  std::vector<SafetensorsEntry> entries = layout_.tensors;
  std::set<std::string> known;
  for (const SafetensorsEntry& entry : entries) known.insert(entry.name);
  for (const std::string& name : variables) {
    if (!known.insert(name).second) continue;
    const VariableShard* const shard = variables_.Find(name);
    if (shard == nullptr) {
      return absl::NotFoundError(absl::StrCat("no variable '", name, "' on this rank"));
    }
    entries.push_back({name, shard->dtype, shard->local_shape, 0});
  }
  if (entries.size() == layout_.tensors.size()) return absl::OkStatus();
  Poll(/*wait=*/true);
  image_ = Tensor();
  WEFT_ASSIGN_OR_RETURN(
      layout_, LayOutSafetensors(std::move(entries),
                                 {{"writer", "weft"}, {"rank", absl::StrCat(rank_.value)}}));
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Prepare() {
  if (image_.valid() || bytes() == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(image_, Tensor::Allocate(DType::kUint8, Shape({bytes()})));
  // Every page is touched here, and not between two steps.
  std::memset(image_.raw_data(), 0, image_.bytes());
  std::memcpy(image_.raw_data(), layout_.header.data(), layout_.header.size());
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Copy() {
  WEFT_RETURN_IF_ERROR(Prepare());
  auto* const image = static_cast<std::byte*>(image_.raw_data());
  for (const SafetensorsEntry& entry : layout_.tensors) {
    WEFT_RETURN_IF_ERROR(variables_.ReadPart(
        entry.name, 0, {image + entry.offset, static_cast<size_t>(entry.bytes())}));
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::CheckFinite() const {
  for (const SafetensorsEntry& entry : layout_.tensors) {
    const Tensor tensor(entry.dtype, entry.shape, image_.buffer(),
                        image_.offset() + static_cast<size_t>(entry.offset));
    WEFT_RETURN_IF_ERROR(CheckVariableFinite(entry.name, tensor));
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Save(const std::string& folder) {
  const int64_t begin = clock_.MonotonicNanos();
  Poll(/*wait=*/true);
  CheckpointWrite write;
  write.folder = folder;
  write.state = CheckpointWrite::State::kDone;
  if (bytes() > 0) write.status = Copy();
  if (bytes() > 0 && write.status.ok()) WEFT_RETURN_IF_ERROR(CheckFinite());
  if (bytes() > 0 && write.status.ok()) {
    write.state = CheckpointWrite::State::kRunning;
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  }
  write.pause_seconds = SecondsSince(clock_, begin);
  MutexLock lock(mutex_);
  write_ = std::move(write);
  changed_.NotifyAll();
  return absl::OkStatus();
}

CheckpointWrite CheckpointWriter::Poll(bool wait) {
  MutexLock lock(mutex_);
  while (wait && write_.state == CheckpointWrite::State::kRunning) changed_.Wait(mutex_);
  return write_;
}

void CheckpointWriter::Run() {
  while (true) {
    CheckpointWrite write;
    {
      MutexLock lock(mutex_);
      while (write_.state != CheckpointWrite::State::kRunning && !ending_) changed_.Wait(mutex_);
      if (write_.state != CheckpointWrite::State::kRunning) return;
      write = write_;
    }
    Write(write);
    MutexLock lock(mutex_);
    write.state = CheckpointWrite::State::kDone;
    write_ = std::move(write);
    changed_.NotifyAll();
  }
}

void CheckpointWriter::Write(CheckpointWrite& write) {
  const int64_t begin = clock_.MonotonicNanos();
  const std::span<const std::byte> image(static_cast<const std::byte*>(image_.raw_data()),
                                         image_.bytes());
  for (const SafetensorsEntry& entry : layout_.tensors) {
    write.tensors[entry.name] = Checksum(
        image.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes())));
  }
  write.checksum = Checksum(image);
  write.bytes = static_cast<int64_t>(image.size());
  write.file = absl::StrFormat("rank-%05d.safetensors", rank_.value);
  write.status = files_.WriteFileAtomically(
      absl::StrCat(write.folder, "/", write.file),
      std::string_view(reinterpret_cast<const char*>(image.data()), image.size()));
  write.write_seconds = SecondsSince(clock_, begin);
}

}  // namespace weft
