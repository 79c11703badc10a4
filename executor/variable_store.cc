#include "executor/variable_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr absl::Duration kCopyTimeout = absl::Minutes(5);

absl::Status CheckLocal(const Tensor& local, const VariableShard& shard) {
  if (local.dtype() == shard.dtype && local.shape() == shard.local_shape) return absl::OkStatus();
  const auto name = [](DType dtype) { return std::string(DTypeName(dtype)); };
  return absl::InvalidArgumentError(absl::StrCat(
      "variable '", shard.name, "' is ", name(shard.dtype), shard.local_shape.ToString(),
      " on this rank, got ", name(local.dtype()), local.shape().ToString()));
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
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device_.NewStream("variables"));
  for (const VariableShard& shard : shards) {
    const auto known = entries_.find(shard.name);
    if (known != entries_.end()) {
      WEFT_RETURN_IF_ERROR(CheckLocal(known->second.tensor, shard));
      continue;
    }
    WEFT_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Zeros(shard.dtype, shard.local_shape));
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory,
                          device_.Allocate(std::max<size_t>(zeros.bytes(), 1)));
    WEFT_RETURN_IF_ERROR(
        device_.CopyFromHost(*stream, zeros.raw_data(), memory->data(), zeros.bytes()));
    WEFT_RETURN_IF_ERROR(stream->Synchronize(kCopyTimeout));
    entries_[shard.name] = {shard, Tensor(shard.dtype, shard.local_shape, std::move(memory))};
  }
  return absl::OkStatus();
}

absl::Status VariableStore::Write(const std::string& name, const Tensor& local) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) {
    return absl::NotFoundError(absl::StrCat("no variable '", name, "' on this rank"));
  }
  WEFT_RETURN_IF_ERROR(CheckLocal(local, entry->second.shard));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device_.NewStream("variables"));
  WEFT_RETURN_IF_ERROR(device_.CopyFromHost(*stream, local.raw_data(),
                                            entry->second.tensor.raw_data(), local.bytes()));
  return stream->Synchronize(kCopyTimeout);
}

absl::StatusOr<Tensor> VariableStore::Read(const std::string& name) const {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) {
    return absl::NotFoundError(absl::StrCat("no variable '", name, "' on this rank"));
  }
  const Tensor& stored = entry->second.tensor;
  WEFT_ASSIGN_OR_RETURN(Tensor host, Tensor::Allocate(stored.dtype(), stored.shape()));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device_.NewStream("variables"));
  WEFT_RETURN_IF_ERROR(
      device_.CopyToHost(*stream, stored.raw_data(), host.raw_data(), stored.bytes()));
  WEFT_RETURN_IF_ERROR(stream->Synchronize(kCopyTimeout));
  return host;
}

absl::StatusOr<void*> VariableStore::DevicePointer(const std::string& name) const {
  const auto entry = entries_.find(name);
  if (entry == entries_.end()) {
    return absl::NotFoundError(absl::StrCat("no variable '", name, "' on this rank"));
  }
  return entry->second.tensor.raw_data();
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
  for (const auto& [name, entry] : entries_) bytes += static_cast<int64_t>(entry.tensor.bytes());
  return bytes;
}

absl::StatusOr<Tensor> SliceShard(const Tensor& global, const VariableShard& shard) {
  WEFT_RETURN_IF_ERROR(CheckGlobal(global, shard));
  WEFT_ASSIGN_OR_RETURN(Tensor local, Tensor::Allocate(shard.dtype, shard.local_shape));
  const char* from = static_cast<const char*>(global.raw_data());
  char* to = static_cast<char*>(local.raw_data());
  WEFT_ASSIGN_OR_RETURN(const std::vector<Run> runs, RunsOf(shard));
  for (const Run& run : runs) {
    std::memcpy(to + run.local, from + run.global, static_cast<size_t>(run.bytes));
  }
  return local;
}

absl::Status AssembleShard(const Tensor& local, const VariableShard& shard, Tensor& global) {
  WEFT_RETURN_IF_ERROR(CheckLocal(local, shard));
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
