// What convolutions, attention and normalizations share: the functions of the library, its objects,
// graphs of operations, and how a plan is chosen and run. Includes cudnn.h; private to this room.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_BACKEND_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_BACKEND_H_

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"
#include "tensor/cuda/symbol_source.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// The functions that are used. Each has the type that the header declares.
struct DnnFunctions {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetErrorString) status_text = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendGetAttribute) get = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
};

// The errors of `symbols`.
absl::StatusOr<DnnFunctions> FindDnnFunctions(const SymbolSource& symbols);

// OK; Unimplemented for what the library says it does not support (its numbers 3000 to 3999); else
// Internal. Both with what was asked of the library and what it says.
absl::Status CheckDnn(const DnnFunctions& f, cudnnStatus_t status, absl::string_view what);

// An object of the backend API, until it is destroyed.
class DnnDescriptor {
 public:
  static absl::StatusOr<DnnDescriptor> Create(const DnnFunctions& f,
                                              cudnnBackendDescriptorType_t type, const char* name) {
    DnnDescriptor made(f, name);
    WEFT_RETURN_IF_ERROR(
        CheckDnn(f, f.create_descriptor(type, &made.handle_), absl::StrCat("make ", name)));
    return made;
  }
  DnnDescriptor(DnnDescriptor&& other) noexcept
      : f_(other.f_), name_(other.name_), handle_(std::exchange(other.handle_, nullptr)) {}
  DnnDescriptor& operator=(DnnDescriptor&& other) noexcept {
    std::swap(f_, other.f_);
    std::swap(name_, other.name_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~DnnDescriptor() {
    if (handle_ != nullptr) f_->destroy_descriptor(handle_);
  }

  cudnnBackendDescriptor_t get() const { return handle_; }

  absl::Status Set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                   int64_t count, const void* values) {
    return CheckDnn(*f_, f_->set(handle_, attribute, type, count, values),
                    absl::StrCat("set attribute ", static_cast<int>(attribute), " of ", name_));
  }
  absl::Status SetInts(cudnnBackendAttributeName_t attribute, const std::vector<int64_t>& values) {
    return Set(attribute, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  absl::Status SetInt(cudnnBackendAttributeName_t attribute, int64_t value) {
    return Set(attribute, CUDNN_TYPE_INT64, 1, &value);
  }
  absl::Status SetFloat(cudnnBackendAttributeName_t attribute, float value) {
    return Set(attribute, CUDNN_TYPE_FLOAT, 1, &value);
  }
  absl::Status SetDataType(cudnnBackendAttributeName_t attribute, cudnnDataType_t value) {
    return Set(attribute, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  absl::Status SetHandle(cudnnBackendAttributeName_t attribute, cudnnHandle_t library) {
    return Set(attribute, CUDNN_TYPE_HANDLE, 1, &library);
  }
  absl::Status SetDescriptor(cudnnBackendAttributeName_t attribute, const DnnDescriptor& value) {
    return Set(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
  }
  absl::Status Finalize() {
    return CheckDnn(*f_, f_->finalize(handle_), absl::StrCat("finalize ", name_));
  }
  // Up to `capacity` values into `values`; returns how many there are.
  absl::StatusOr<int64_t> Get(cudnnBackendAttributeName_t attribute,
                              cudnnBackendAttributeType_t type, int64_t capacity,
                              void* values) const {
    int64_t count = 0;
    WEFT_RETURN_IF_ERROR(
        CheckDnn(*f_, f_->get(handle_, attribute, type, capacity, &count, values),
                 absl::StrCat("tell attribute ", static_cast<int>(attribute), " of ", name_)));
    return count;
  }

 private:
  DnnDescriptor(const DnnFunctions& f, const char* name) : f_(&f), name_(name) {}

  const DnnFunctions* f_;
  const char* name_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// float32 for any but the 16-bit types.
cudnnDataType_t DnnTypeOf(DType dtype);

// The library on one device, which all plans of the device share. A handle belongs to one call at a
// time.
struct DnnHandle {
  DnnHandle(const DnnFunctions& functions, cudnnHandle_t handle) : f(functions), library(handle) {}
  ~DnnHandle() { f.destroy(library); }

  const DnnFunctions f;
  Mutex mutex;
  const cudnnHandle_t library;
};

// How exact an engine has to be. Those that give other bits each time are never used.
struct EngineLaws {
  bool tensor_cores = true;    // of float32 operands: TF32
  bool down_converts = false;  // operands may be rounded to another type
};

// A plan that is finalized, and what it was made of.
struct DnnPlan {
  DnnDescriptor config;
  DnnDescriptor descriptor;
  size_t workspace_bytes;
};

// Of the engine configurations that the library proposes (heuristics A, then those that always
// fit), the first one that makes a plan, keeps the laws, and wants at most `workspace_limit` bytes.
// Unimplemented with `what` where there is none.
absl::StatusOr<DnnPlan> FindPlan(DnnHandle& shared, const DnnDescriptor& graph,
                                 const EngineLaws& laws, size_t workspace_limit,
                                 const std::string& what)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared.mutex);

// Tensors and operations, which live as long as the graph that is made of them. Parts are known by
// their places. Movable.
class DnnGraph {
 public:
  enum class TensorKind : uint8_t {
    kOperand,  // has an address
    kVirtual,  // a value between two operations
    kNumber,   // one float32 on the host
  };

  explicit DnnGraph(const DnnFunctions& f) : f_(&f) {}

  // REQUIRES: Finish was called.
  const DnnDescriptor& graph() const { return parts_.back(); }

  const DnnFunctions& functions() const { return *f_; }
  const DnnDescriptor& part(size_t place) const { return parts_[place]; }
  // Finalizes a descriptor; returns its place.
  absl::StatusOr<size_t> Keep(DnnDescriptor descriptor);
  absl::StatusOr<size_t> Tensor(const DnnTensor& layout, int64_t id, cudnnDataType_t type,
                                TensorKind kind = TensorKind::kOperand);
  // The graph of the operations at these places.
  absl::Status Finish(cudnnHandle_t library, const std::vector<size_t>& operations);

 private:
  const DnnFunctions* f_;
  std::vector<DnnDescriptor> parts_;  // the graph is the last
};

// Runs a plan. Used by one thread at a time.
class DnnRunner {
 public:
  // `what`: for errors. `shared` outlives it.
  DnnRunner(DnnHandle& shared, DnnGraph graph, DnnPlan plan, std::string what)
      : shared_(shared), graph_(std::move(graph)), plan_(std::move(plan)), what_(std::move(what)) {}

  size_t workspace_bytes() const { return plan_.workspace_bytes; }

  // `addresses` of the tensors with these ids, on the device or, for numbers, on the host.
  absl::Status Run(const std::vector<int64_t>& ids, const std::vector<void*>& addresses,
                   void* workspace, LaunchQueue queue);

 private:
  // Says where operands lie. Programs give the same addresses each time.
  absl::Status Pack(const std::vector<int64_t>& ids, const std::vector<void*>& addresses,
                    void* workspace);

  DnnHandle& shared_;
  // What the plan was made of lives as long as it does.
  DnnGraph graph_;
  DnnPlan plan_;
  std::string what_;
  std::vector<DnnDescriptor> packs_;  // of addresses_ and workspace_; none at first
  std::vector<void*> addresses_;
  void* workspace_ = nullptr;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_BACKEND_H_
