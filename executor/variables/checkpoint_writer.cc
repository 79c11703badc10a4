#include "executor/variables/checkpoint_writer.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"
#include "platform/task_thread.h"
#include "tensor/buffer.h"
#include "tensor/host_memory.h"

namespace weft {
namespace {

// Small enough for a processor's own cache; whole elements of every dtype.
constexpr int64_t kCopyPieceBytes = int64_t{256} << 10;
// A copy has a thread for so much of it, up to so many: more do not make the memory quicker.
constexpr int64_t kBytesPerThread = int64_t{8} << 20;
constexpr int64_t kMaxThreads = 4;

// Of bytes that are not read again soon: past the caches, so that their old contents are not
// fetched from memory first, and nothing else is driven out.
void CopyPastCaches(const std::byte* from, std::byte* to, size_t bytes) {
#ifdef __SSE2__
  constexpr size_t kLine = 64;
  const size_t before = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % kLine);
  std::memcpy(to, from, before);
  size_t done = before;
  for (; done + kLine <= bytes; done += kLine) {
    for (size_t i = done; i < done + kLine; i += sizeof(__m128i)) {
      const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), values);
    }
  }
  _mm_sfence();
#else
  const size_t done = 0;
#endif
  std::memcpy(to + done, from + done, bytes - done);
}

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

absl::StatusOr<std::vector<CheckpointWriter::Piece>> CheckpointWriter::Pieces() {
  std::vector<Piece> pieces;
  for (const SafetensorsEntry& entry : layout_.tensors) {
    std::shared_ptr<Buffer> source;
    if (variables_.is_on_host()) {
      WEFT_ASSIGN_OR_RETURN(const void* const memory, variables_.DevicePointer(entry.name));
      source = AdoptHostMemory(memory, static_cast<size_t>(entry.bytes()), nullptr);
    }
    const int64_t max_bytes =
        source != nullptr ? kCopyPieceBytes : std::max<int64_t>(entry.bytes(), 1);
    for (int64_t offset = 0; offset < entry.bytes(); offset += max_bytes) {
      pieces.push_back({&entry, source, offset, std::min(max_bytes, entry.bytes() - offset)});
    }
  }
  return pieces;
}

absl::Status CheckpointWriter::CopyPiece(const Piece& piece, absl::Status& finite) {
  const SafetensorsEntry& entry = *piece.entry;
  const auto offset = static_cast<size_t>(piece.offset), bytes = static_cast<size_t>(piece.bytes);
  std::byte* const copy = static_cast<std::byte*>(image_.raw_data()) + entry.offset + piece.offset;
  std::shared_ptr<Buffer> seen = piece.source;
  if (seen == nullptr) {
    WEFT_RETURN_IF_ERROR(variables_.ReadPart(entry.name, piece.offset, {copy, bytes}));
    seen = AdoptHostMemory(copy - piece.offset, offset + bytes, nullptr);
  }
  // First, so that the piece is in the processor's cache when it is copied.
  const int64_t element = DTypeBytes(entry.dtype, 1);
  finite = CheckVariableFinite(entry.name,
                               Tensor(entry.dtype, Shape({piece.bytes / element}), seen, offset),
                               piece.offset / element);
  if (piece.source == nullptr) return absl::OkStatus();
  CopyPastCaches(static_cast<const std::byte*>(seen->data()) + offset, copy, bytes);
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Copy(absl::Status& finite) {
  WEFT_RETURN_IF_ERROR(Prepare());
  WEFT_ASSIGN_OR_RETURN(const std::vector<Piece> pieces, Pieces());
  // A device is asked by one thread.
  const int64_t useful = variables_.is_on_host() ? bytes() / kBytesPerThread : 1;
  const int64_t cores = std::min<int64_t>(std::thread::hardware_concurrency(), kMaxThreads);
  std::atomic<size_t> next{0};
  Mutex mutex;
  absl::Status copied;         // of the first piece that failed
  size_t bad = pieces.size();  // the first piece that is not finite
  RunOnThreads(static_cast<int>(std::min(useful, cores)), [&] {
    for (size_t at = next++; at < pieces.size(); at = next++) {
      absl::Status finite_here;
      const absl::Status status = CopyPiece(pieces[at], finite_here);
      if (status.ok() && finite_here.ok()) continue;
      const MutexLock lock(mutex);
      copied.Update(status);
      if (finite_here.ok() || at > bad) continue;
      bad = at;
      finite = finite_here;
    }
  });
  return copied;
}

absl::Status CheckpointWriter::Save(const std::string& folder) {
  const int64_t begin = clock_.MonotonicNanos();
  Poll(/*wait=*/true);
  CheckpointWrite write;
  write.folder = folder;
  write.state = CheckpointWrite::State::kDone;
  absl::Status finite;
  if (bytes() > 0) write.status = Copy(finite);
  if (write.status.ok()) WEFT_RETURN_IF_ERROR(finite);
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
  const std::string_view image(static_cast<const char*>(image_.raw_data()), image_.bytes());
  const std::string file = absl::StrFormat("rank-%05d.safetensors", rank_.value);
  absl::Status written;
  std::atomic<int> next{0};
  RunOnThreads(2, [&] {
    for (int task = next++; task < 2; task = next++) {
      if (task == 0) {
        written = files_.WriteFileAtomically(absl::StrCat(write.folder, "/", file), image);
      } else {
        ComputeChecksums(write);
      }
    }
  });
  write.status = written;
  write.file = file;
  write.bytes = static_cast<int64_t>(image.size());
  write.write_seconds = SecondsSince(clock_, begin);
}

// In one pass: a piece is in the processor's cache when it is added to the second.
void CheckpointWriter::ComputeChecksums(CheckpointWrite& write) const {
  const std::span<const std::byte> image(static_cast<const std::byte*>(image_.raw_data()),
                                         image_.bytes());
  RunningChecksum file, tensor;
  file.Add(image.first(layout_.header.size()));
  // The tensors lie one after the other, up to the end.
  for (const SafetensorsEntry& entry : layout_.tensors) {
    tensor.Reset();
    for (int64_t offset = 0; offset < entry.bytes(); offset += kCopyPieceBytes) {
      const int64_t bytes = std::min(kCopyPieceBytes, entry.bytes() - offset);
      const auto piece =
          image.subspan(static_cast<size_t>(entry.offset + offset), static_cast<size_t>(bytes));
      tensor.Add(piece);
      file.Add(piece);
    }
    write.tensors[entry.name] = tensor.Value();
  }
  write.checksum = file.Value();
}

}  // namespace weft
