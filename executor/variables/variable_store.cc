#include "executor/variables/variable_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/mapped_pages.h"
#include "platform/status_macros.h"
#include "tensor/special_values.h"

namespace weft {
namespace {

constexpr absl::Duration kCopyTimeout = absl::Minutes(5);
// Zeros are copied to other memories in parts of this size.
constexpr size_t kZeroBytes = size_t{1} << 20;

absl::Status CheckLocal(DType dtype, const Shape& shape, const VariableShard& shard) {
  if (dtype == shard.dtype && shape == shard.local_shape) return absl::OkStatus();
  const auto name = [](DType type) { return std::string(DTypeName(type)); };
  return absl::InvalidArgumentError(absl::StrCat(
      "variable '", shard.name, "' is ", name(shard.dtype), shard.local_shape.ToString(),
      " on this rank, got ", name(dtype), shape.ToString()));
}

absl::Status CheckPart(const std::string& name, const Tensor& variable, int64_t offset,
                       size_t bytes) {
  if (offset >= 0 && static_cast<size_t>(offset) <= variable.bytes() &&
      bytes <= variable.bytes() - static_cast<size_t>(offset)) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat("variable '", name, "' has ", variable.bytes(),
                                            " bytes on this rank, asked for ", bytes, " at ",
                                            offset));
}

// In units of the alignment that every buffer has.
int64_t BytesOf(const VariableShard& shard) {
  constexpr auto kUnit = static_cast<int64_t>(kAlignment);
  const int64_t bytes = DTypeBytes(shard.dtype, shard.local_shape.num_elements());
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

absl::Status CheckGlobal(const Tensor& global, const VariableShard& shard) {
  if (global.dtype() == shard.dtype && global.shape() == shard.global_shape) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("variable '", shard.name, "' is ", std::string(DTypeName(shard.dtype)),
                   shard.global_shape.ToString(), ", got ", std::string(DTypeName(global.dtype())),
                   global.shape().ToString()));
}

absl::Status BadShard(const VariableShard& shard, const Shape& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("variable '", shard.name, "': shard ", shard.tensor_index, " of ",
                   shard.tensor_shards, " of ", shard.global_shape.ToString(), " has shape ",
                   shard.local_shape.ToString(), ", expected ", expected.ToString()));
}

// Runs of bytes that the tensor shard, of shape `local`, and the global tensor share: (global
// offset, offset in the tensor shard, bytes).
template <typename Fn>
absl::Status ForEachTensorRun(const VariableShard& shard, Shape& local, Fn fn) {
  const int64_t element = DTypeBytes(shard.dtype, 1);
  local = shard.global_shape;
  if (!shard.tensor_sharding.is_split() || shard.tensor_shards == 1) {
    fn(int64_t{0}, int64_t{0}, DTypeBytes(shard.dtype, shard.global_shape.num_elements()));
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(shard.tensor_sharding.Validate(shard.global_shape));
  if (shard.tensor_index < 0 || shard.tensor_index >= shard.tensor_shards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "variable '", shard.name, "': shard ", shard.tensor_index, " of ", shard.tensor_shards));
  }
  local =
      shard.tensor_sharding.LocalShape(shard.global_shape, shard.tensor_shards, shard.tensor_index);
  const int axis = shard.tensor_sharding.axis;
  const int64_t outer = shard.global_shape.ProductOf(0, axis) * shard.tensor_sharding.blocks;
  const int64_t inner = shard.global_shape.ProductOf(axis + 1, shard.global_shape.rank());
  const int64_t rest = shard.global_shape.dim(axis) / shard.tensor_sharding.blocks;
  const AxisSharding::Range range =
      AxisSharding::ShardRange(rest, shard.tensor_shards, shard.tensor_index);
  const int64_t bytes = range.count * inner * element;
  for (int64_t row = 0; row < outer; ++row) {
    fn((row * rest + range.first) * inner * element, row * bytes, bytes);
  }
  return absl::OkStatus();
}

struct Run {
  int64_t global = 0;  // offsets in bytes
  int64_t local = 0;
  int64_t bytes = 0;
};

// Runs of bytes that this rank's part and the global tensor share. Its rows of the tensor shard are
// one range of bytes.
absl::StatusOr<std::vector<Run>> RunsOf(const VariableShard& shard) {
  std::vector<Run> runs;
  Shape local;
  WEFT_RETURN_IF_ERROR(
      ForEachTensorRun(shard, local, [&](int64_t global, int64_t offset, int64_t bytes) {
        if (bytes > 0) runs.push_back({global, offset, bytes});
      }));
  if (shard.data_shards > 1) {
    if (local.rank() == 0 || shard.data_index < 0 || shard.data_index >= shard.data_shards) {
      return absl::InvalidArgumentError(absl::StrCat("variable '", shard.name, "': part ",
                                                     shard.data_index, " of ", shard.data_shards,
                                                     " of the rows of ", local.ToString()));
    }
    const auto rows = AxisSharding::ShardRange(local.dim(0), shard.data_shards, shard.data_index);
    const int64_t row = DTypeBytes(shard.dtype, local.ProductOf(1, local.rank()));
    local.set_dim(0, rows.count);
    const int64_t first = rows.first * row;
    const int64_t last = first + rows.count * row;
    std::vector<Run> clipped;
    for (const Run& run : runs) {
      const int64_t begin = std::max(run.local, first);
      const int64_t end = std::min(run.local + run.bytes, last);
      if (begin < end)
        clipped.push_back({run.global + begin - run.local, begin - first, end - begin});
    }
    runs = std::move(clipped);
  }
  if (shard.local_shape != local) return BadShard(shard, local);
  return runs;
}

}  // namespace

absl::Status VariableStore::Add(const std::vector<VariableShard>& shards) {
  for (const VariableShard& shard : shards) {
    const auto [known, added] = entries_.try_emplace(shard.name, Entry{shard, Tensor()});
    if (added) continue;
    const VariableShard& other = known->second.shard;
    WEFT_RETURN_IF_ERROR(CheckLocal(other.dtype, other.local_shape, shard));
  }
  return absl::OkStatus();
}

absl::Status VariableStore::Allocate(Entry& entry) {
  const VariableShard& shard = entry.shard;
  const auto bytes = static_cast<size_t>(DTypeBytes(shard.dtype, shard.local_shape.num_elements()));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory,
                        device_.Allocate(std::max<size_t>(bytes, 1)));
  if (device_.info().host_accessible) {
    std::memset(memory->data(), 0, bytes);
  } else {
    const std::vector<std::byte> zeros(std::min(bytes, kZeroBytes));
    auto* const target = static_cast<std::byte*>(memory->data());
    WEFT_RETURN_IF_ERROR(Copy([&](Stream& stream) {
      absl::Status status;
      for (size_t offset = 0; offset < bytes && status.ok(); offset += kZeroBytes) {
        status = device_.CopyFromHost(stream, zeros.data(), target + offset,
                                      std::min(kZeroBytes, bytes - offset));
      }
      return status;
    }));
  }
  entry.tensor = Tensor(shard.dtype, shard.local_shape, std::move(memory));
  return absl::OkStatus();
}

absl::Status VariableStore::Copy(absl::FunctionRef<absl::Status(Stream&)> enqueue) {
  if (stream_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(stream_, device_.NewStream("variables"));
  }
  absl::Status status = enqueue(*stream_);
  if (status.ok()) status = stream_->Synchronize(kCopyTimeout);
  if (!status.ok()) stream_.reset();
  return status;
}

absl::StatusOr<VariableStore::Entry*> VariableStore::Use(const std::string& name) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) {
    return absl::NotFoundError(absl::StrCat("no variable '", name, "' on this rank"));
  }
  if (!entry->second.tensor.valid()) WEFT_RETURN_IF_ERROR(Allocate(entry->second));
  return &entry->second;
}

absl::Status VariableStore::Write(const std::string& name, const Tensor& local) {
  if (const VariableShard* const shard = Find(name); shard != nullptr) {
    WEFT_RETURN_IF_ERROR(CheckLocal(local.dtype(), local.shape(), *shard));
  }
  const auto* const bytes = static_cast<const std::byte*>(local.raw_data());
  absl::Status status;
  ForEachMappedWindow({bytes, local.bytes()}, [&](std::span<const std::byte> part) {
    if (status.ok()) status = WritePart(name, part.data() - bytes, part);
  });
  return status;
}

absl::StatusOr<Tensor> VariableStore::Read(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(const Entry* entry, Use(name));
  WEFT_ASSIGN_OR_RETURN(Tensor host,
                        Tensor::Allocate(entry->shard.dtype, entry->shard.local_shape));
  WEFT_RETURN_IF_ERROR(ReadPart(name, 0, {static_cast<std::byte*>(host.raw_data()), host.bytes()}));
  return host;
}

absl::Status VariableStore::WritePart(const std::string& name, int64_t offset,
                                      std::span<const std::byte> part) {
  WEFT_ASSIGN_OR_RETURN(Entry * entry, Use(name));
  WEFT_RETURN_IF_ERROR(CheckPart(name, entry->tensor, offset, part.size()));
  ++writes_;
  auto* const target = static_cast<std::byte*>(entry->tensor.raw_data()) + offset;
  return Copy([&](Stream& stream) {
    return device_.CopyFromHost(stream, part.data(), target, part.size());
  });
}

absl::Status VariableStore::ReadPart(const std::string& name, int64_t offset,
                                     std::span<std::byte> part) {
  WEFT_ASSIGN_OR_RETURN(const Entry* entry, Use(name));
  WEFT_RETURN_IF_ERROR(CheckPart(name, entry->tensor, offset, part.size()));
  const auto* const source = static_cast<const std::byte*>(entry->tensor.raw_data()) + offset;
  if (device_.info().host_accessible) {  // no step runs, so no stream is needed, and none allocated
    std::copy_n(source, part.size(), part.data());
    return absl::OkStatus();
  }
  return Copy(
      [&](Stream& stream) { return device_.CopyToHost(stream, source, part.data(), part.size()); });
}

absl::StatusOr<void*> VariableStore::DevicePointer(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(Entry * entry, Use(name));
  return entry->tensor.raw_data();
}

const VariableShard* VariableStore::Find(const std::string& name) const {
  const auto entry = entries_.find(name);
  return entry != entries_.end() ? &entry->second.shard : nullptr;
}

std::vector<std::string> VariableStore::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

int64_t VariableStore::bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, entry] : entries_) bytes += BytesOf(entry.shard);
  return bytes;
}

int64_t VariableStore::allocated_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry.tensor.valid()) bytes += BytesOf(entry.shard);
  }
  return bytes;
}

absl::Status CheckVariableFinite(const std::string& name, const Tensor& value, int64_t first) {
  const int64_t index = FindNonFinite(value);
  if (index < 0) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "variable '", name, "' has become ", ElementText(value, index), " (element ", first + index,
      ") though the loss was finite; nothing of this state was kept. A smaller learning rate or "
      "clipping may help; --check-numerics names the node that makes it"));
}

absl::StatusOr<Tensor> SliceShard(const Tensor& global, const VariableShard& shard) {
  WEFT_RETURN_IF_ERROR(CheckGlobal(global, shard));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Run> runs, RunsOf(shard));
  if (runs.size() == 1 && global.buffer() != nullptr) {
    return Tensor(shard.dtype, shard.local_shape, global.buffer(),
                  global.offset() + static_cast<size_t>(runs.front().global));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor local, Tensor::Allocate(shard.dtype, shard.local_shape));
  const auto* const from = static_cast<const std::byte*>(global.raw_data());
  auto* const to = static_cast<std::byte*>(local.raw_data());
  int64_t released = 0;  // of the global tensor: the bytes before this are not read again
  for (const Run& run : runs) {
    std::memcpy(to + run.local, from + run.global, static_cast<size_t>(run.bytes));
    const int64_t end = run.global + run.bytes;
    if (end - released < static_cast<int64_t>(kMappedWindow) && &run != &runs.back()) continue;
    ReleaseMappedPages({from + released, static_cast<size_t>(end - released)});
    released = end;
  }
  return local;
}

absl::Status AssembleShard(const Tensor& local, const VariableShard& shard, Tensor& global) {
  WEFT_RETURN_IF_ERROR(CheckLocal(local.dtype(), local.shape(), shard));
  WEFT_RETURN_IF_ERROR(CheckGlobal(global, shard));
  const char* from = static_cast<const char*>(local.raw_data());
  char* to = static_cast<char*>(global.raw_data());
  WEFT_ASSIGN_OR_RETURN(const std::vector<Run> runs, RunsOf(shard));
  for (const Run& run : runs) {
    std::memcpy(to + run.global, from + run.local, static_cast<size_t>(run.bytes));
  }
  return absl::OkStatus();
}

}  // namespace weft
