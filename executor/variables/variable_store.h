// VariableStore: the values of a rank's variables, across steps and programs.
#ifndef WEFT_EXECUTOR_VARIABLES_VARIABLE_STORE_H_
#define WEFT_EXECUTOR_VARIABLES_VARIABLE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/partition.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace weft {

// Owns one device buffer per variable shard. All programs of a rank share it; their instructions
// hold its pointers, which never move. A variable has no memory before it is first written, read or
// pointed at, so that what will be needed is known before it is taken. Not synchronized: between
// steps only.
class VariableStore {
 public:
  explicit VariableStore(Device& device) : device_(device) {}
  // Adds variables that are not there yet (zeros); InvalidArgument if one is there with another
  // shape.
  absl::Status Add(const std::vector<VariableShard>& shards);
  // Host copies of the local shard. One that is written may lie in a mapped file, of which little
  // is in memory at a time (platform/mapped_pages.h).
  absl::Status Write(const std::string& name, const Tensor& local);
  absl::StatusOr<Tensor> Read(const std::string& name);
  // The same in parts, without a copy of the whole: the bytes from `offset` on. OutOfRange beyond
  // the variable's end.
  absl::Status WritePart(const std::string& name, int64_t offset, std::span<const std::byte> part);
  absl::Status ReadPart(const std::string& name, int64_t offset, std::span<std::byte> part);
  absl::StatusOr<void*> DevicePointer(const std::string& name);
  // Whether the host reaches what DevicePointer says.
  bool is_on_host() const { return device_.info().host_accessible; }
  const VariableShard* Find(const std::string& name) const;
  std::vector<std::string> names() const;
  // Calls of Write and WritePart so far.
  int64_t writes() const { return writes_; }
  // Of all variables, each rounded up to kAlignment; and of those that have memory by now.
  int64_t bytes() const;
  int64_t allocated_bytes() const;

 private:
  struct Entry {
    VariableShard shard;
    Tensor tensor;  // in device memory; not valid before the first use
  };
  // The entry, with memory. NotFound for an unknown name.
  absl::StatusOr<Entry*> Use(const std::string& name);
  absl::Status Allocate(Entry& entry);
  // Has `enqueue` put copies into the one stream of all of them, as a stream costs more than a
  // copy, and waits. After an error that stream is ended, which waits for what it was given: the
  // memory of the copies may go back then.
  absl::Status Copy(absl::FunctionRef<absl::Status(Stream&)> enqueue);

  Device& device_;
  std::map<std::string, Entry> entries_;
  int64_t writes_ = 0;
  std::unique_ptr<Stream> stream_;  // from the first copy on; ends before the memory
};

// OutOfRange, naming the element, where a variable on the host holds an infinity or a NaN. `first`:
// the number of the value's first element, where it is a part of the variable.
absl::Status CheckVariableFinite(const std::string& name, const Tensor& value, int64_t first = 0);

// The part of a global tensor that a shard owns, and the inverse. Host tensors. The part shares the
// global tensor's memory where it is one run of its bytes (replicas, rows); else it is copied, and
// what it comes from, where that is a mapped file, does not stay in memory.
absl::StatusOr<Tensor> SliceShard(const Tensor& global, const VariableShard& shard);
absl::Status AssembleShard(const Tensor& local, const VariableShard& shard, Tensor& global);

}  // namespace weft

#endif  // WEFT_EXECUTOR_VARIABLES_VARIABLE_STORE_H_
