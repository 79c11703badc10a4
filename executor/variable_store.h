// VariableStore: the values of a rank's variables, across steps and programs.
#ifndef WEFT_EXECUTOR_VARIABLE_STORE_H_
#define WEFT_EXECUTOR_VARIABLE_STORE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace weft {

// Owns one device buffer per variable shard. All programs of a rank share it; their instructions
// hold its pointers, which never move. Not synchronized: between steps only.
class VariableStore {
 public:
  explicit VariableStore(Device& device) : device_(device) {}
  // Adds variables that are not there yet (zeros); InvalidArgument if one is there with another
  // shape.
  absl::Status Add(const std::vector<VariableShard>& shards);
  // Host copies of the local shard.
  absl::Status Write(const std::string& name, const Tensor& local);
  absl::StatusOr<Tensor> Read(const std::string& name) const;
  absl::StatusOr<void*> DevicePointer(const std::string& name) const;
  const VariableShard* Find(const std::string& name) const;
  std::vector<std::string> names() const;
  int64_t bytes() const;

 private:
  struct Entry {
    VariableShard shard;
    Tensor tensor;  // in device memory
  };
  Device& device_;
  std::map<std::string, Entry> entries_;
};

// The part of a global tensor that a shard owns, and the inverse. Host tensors.
absl::StatusOr<Tensor> SliceShard(const Tensor& global, const VariableShard& shard);
absl::Status AssembleShard(const Tensor& local, const VariableShard& shard, Tensor& global);

}  // namespace weft

#endif  // WEFT_EXECUTOR_VARIABLE_STORE_H_
