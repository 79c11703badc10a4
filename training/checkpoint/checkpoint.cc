#include "training/checkpoint/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "executor/variables/variable_store.h"
#include "graph/policy/file_verifier.h"
#include "platform/checksum.h"
#include "platform/mapped_pages.h"
#include "platform/status_macros.h"
#include "platform/task_thread.h"
#include "tensor/host_memory.h"

namespace weft {
namespace {

// A longer index is refused: some hundred thousand tensors fit.
constexpr size_t kMaxIndexBytes = size_t{64} << 20;
// So much of a file is verified, or read, at a time, while the system reads the next from the disk.
constexpr size_t kVerifiedBytes = size_t{16} << 20;
// A thread more is worth it for so much.
constexpr size_t kBytesPerThread = size_t{4} << 20;
constexpr size_t kMaxThreads = 4;

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat("\"", absl::Utf8SafeCEscape(path), "\" is damaged: ", what));
}

}  // namespace

std::string Checkpoint::PathOf(int file) const {
  return absl::StrCat(folder_, "/", index_.files[static_cast<size_t>(file)].name);
}

absl::StatusOr<Checkpoint> Checkpoint::Open(FileSystem& files, const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  const std::string path = absl::StrCat(folder, "/", kCheckpointIndexName);
  WEFT_ASSIGN_OR_RETURN(const auto index, files.MapFileBeneath(folder, kCheckpointIndexName));
  if (index->size() > kMaxIndexBytes) {
    return Damaged(path,
                   absl::StrCat("it has ", index->size(), " bytes, the most is ", kMaxIndexBytes));
  }
  WEFT_ASSIGN_OR_RETURN(const auto manifest, VerifyFile(files, path, index->bytes()));
  const std::string text(reinterpret_cast<const char*>(index->data()), index->size());
  WEFT_ASSIGN_OR_RETURN(checkpoint.index_, CheckpointIndex::FromJson(text, path));
  for (const CheckpointFile& file : checkpoint.index_.files) {
    WEFT_RETURN_IF_ERROR(checkpoint.OpenFile(files, file, manifest.get()));
  }
  for (const CheckpointTensor& tensor : checkpoint.index_.tensors) {
    for (const CheckpointPart& part : tensor.parts) {
      WEFT_RETURN_IF_ERROR(checkpoint.CheckPart(tensor, part));
    }
  }
  return checkpoint;
}

absl::Status Checkpoint::OpenFile(FileSystem& files, const CheckpointFile& file,
                                  const FileManifest* manifest) {
  const std::string path = absl::StrCat(folder_, "/", file.name);
  auto mapped = files.MapFileBeneath(folder_, file.name);
  if (absl::IsNotFound(mapped.status())) return Damaged(path, "it is missing");
  if (!mapped.ok()) return mapped.status();
  if (static_cast<int64_t>((*mapped)->size()) != file.bytes) {
    return Damaged(
        path, absl::StrCat("it has ", (*mapped)->size(), " bytes, the index says ", file.bytes));
  }
  if (manifest != nullptr) {
    WEFT_RETURN_IF_ERROR(manifest->Check(file.name, (*mapped)->bytes()));
  }
  WEFT_ASSIGN_OR_RETURN(const SafetensorsLayout layout, ParseSafetensors((*mapped)->bytes(), path));
  File& opened = files_.emplace_back();
  opened.bytes = *std::move(mapped);
  for (const SafetensorsEntry& entry : layout.tensors) opened.tensors[entry.name] = entry;
  opened.in_order = layout.tensors;
  return absl::OkStatus();
}

absl::Status Checkpoint::CheckPart(const CheckpointTensor& tensor,
                                   const CheckpointPart& part) const {
  WEFT_ASSIGN_OR_RETURN(const VariableShard shard, ShardOf(tensor, part));
  const File& file = files_[static_cast<size_t>(part.file)];
  const auto entry = file.tensors.find(tensor.name);
  if (entry != file.tensors.end() && entry->second.dtype == shard.dtype &&
      entry->second.shape == shard.local_shape) {
    return absl::OkStatus();
  }
  return Damaged(PathOf(part.file),
                 absl::StrCat("tensor '", tensor.name, "' is ",
                              entry == file.tensors.end()
                                  ? "missing"
                                  : absl::StrCat(std::string(DTypeName(entry->second.dtype)),
                                                 entry->second.shape.ToString()),
                              ", the index says ", std::string(DTypeName(shard.dtype)),
                              shard.local_shape.ToString()));
}

std::span<const std::byte> Checkpoint::BytesOf(const CheckpointTensor& tensor,
                                               const CheckpointPart& part) const {
  const File& file = files_[static_cast<size_t>(part.file)];
  const SafetensorsEntry& entry = file.tensors.at(tensor.name);  // CheckPart has found it
  return file.bytes->bytes().subspan(static_cast<size_t>(entry.offset),
                                     static_cast<size_t>(entry.bytes()));
}

Checkpoint::Sums Checkpoint::SumsOf(const File& file) {
  const std::span<const std::byte> bytes = file.bytes->bytes();
  Sums sums;
  RunningChecksum whole, tensor;
  auto entry = file.in_order.begin();
  // Those that end before `end`; `begin` is where the ones before have come to.
  const auto add_tensors = [&](size_t begin, size_t end) {
    for (; entry != file.in_order.end(); ++entry) {
      const auto first = static_cast<size_t>(entry->offset);
      const size_t last = first + static_cast<size_t>(entry->bytes());
      const size_t from = std::max(first, begin), to = std::min(last, end);
      if (from < to) tensor.Add(bytes.subspan(from, to - from));
      if (last > end) return;
      sums.tensors[entry->name] = tensor.Value();
      tensor.Reset();
    }
  };
  ReadMappedPagesAhead(bytes.first(std::min(kVerifiedBytes, bytes.size())));
  for (size_t begin = 0; begin < bytes.size(); begin += kVerifiedBytes) {
    const size_t end = std::min(begin + kVerifiedBytes, bytes.size());
    ReadMappedPagesAhead(bytes.subspan(end, std::min(kVerifiedBytes, bytes.size() - end)));
    std::atomic<int> next{0};
    RunOnThreads(end - begin >= kBytesPerThread ? 2 : 1, [&] {
      for (int task = next++; task < 2; task = next++) {
        if (task == 0) {
          whole.Add(bytes.subspan(begin, end - begin));
        } else {
          add_tensors(begin, end);
        }
      }
    });
    ReleaseMappedPages(bytes.subspan(begin, end - begin));
  }
  sums.file = whole.Value();
  return sums;
}

absl::Status Checkpoint::Verify() const {
  std::vector<Sums> sums;
  for (const File& file : files_) sums.push_back(SumsOf(file));
  for (const CheckpointTensor& tensor : index_.tensors) {
    for (const CheckpointPart& part : tensor.parts) {
      const auto& found = sums[static_cast<size_t>(part.file)].tensors;
      if (found.at(tensor.name) == part.checksum) continue;  // CheckPart has found it
      return Damaged(PathOf(part.file),
                     absl::StrCat("the contents of tensor '", tensor.name, "' have changed"));
    }
  }
  // What is left is headers, and tensors that the index does not know.
  for (size_t i = 0; i < files_.size(); ++i) {
    if (sums[i].file == index_.files[i].checksum) continue;
    return Damaged(PathOf(static_cast<int>(i)), "its header has changed");
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Place(const CheckpointTensor& tensor, const CheckpointPart& part,
                               Tensor& whole) const {
  WEFT_ASSIGN_OR_RETURN(const VariableShard shard, ShardOf(tensor, part));
  const std::span<const std::byte> bytes = BytesOf(tensor, part);
  if (shard.local_shape != tensor.shape) {
    const Tensor local(shard.dtype, shard.local_shape,
                       AdoptHostMemory(bytes.data(), bytes.size(), nullptr));
    WEFT_RETURN_IF_ERROR(AssembleShard(local, shard, whole));
    ReleaseMappedPages(bytes);
    return absl::OkStatus();
  }
  auto* const target = static_cast<std::byte*>(whole.raw_data());
  std::atomic<size_t> next{0};
  const size_t cores = std::min<size_t>(std::thread::hardware_concurrency(), kMaxThreads);
  RunOnThreads(static_cast<int>(std::min(cores, bytes.size() / kBytesPerThread)), [&] {
    for (size_t begin = next.fetch_add(kMappedWindow); begin < bytes.size();
         begin = next.fetch_add(kMappedWindow)) {
      const auto piece = bytes.subspan(begin, std::min(kMappedWindow, bytes.size() - begin));
      const size_t ahead = std::min(begin + kVerifiedBytes, bytes.size());
      ReadMappedPagesAhead(bytes.subspan(ahead, std::min(kMappedWindow, bytes.size() - ahead)));
      std::memcpy(target + begin, piece.data(), piece.size());
      ReleaseMappedPages(piece);
    }
  });
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Checkpoint::Read(const std::string& name) const {
  const CheckpointTensor* const tensor = index_.Find(name);
  if (tensor == nullptr) {
    return absl::NotFoundError(absl::StrCat("checkpoint \"", absl::Utf8SafeCEscape(folder_),
                                            "\" has no tensor '", name, "'"));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor whole, Tensor::Allocate(tensor->dtype, tensor->shape));
  for (const CheckpointPart& part : tensor->parts) {
    WEFT_RETURN_IF_ERROR(Place(*tensor, part, whole));
  }
  return whole;
}

}  // namespace weft
