#include "ops/kernels/cuda/dnn/cudnn_library.h"

#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"

namespace weft::cuda {
namespace {

// The functions that are used. Each has the type that the header declares.
struct DnnFunctions {
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

absl::StatusOr<DnnFunctions> FindDnnFunctions(const SymbolSource& symbols) {
  DnnFunctions f;
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnCreate", f.create));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnDestroy", f.destroy));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnSetStream", f.set_stream));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnGetErrorString", f.status_text));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnGetLastErrorString", f.last_error));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnBackendCreateDescriptor", f.create_descriptor));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnBackendDestroyDescriptor", f.destroy_descriptor));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnBackendSetAttribute", f.set));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnBackendGetAttribute", f.get));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnBackendFinalize", f.finalize));
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnBackendExecute", f.execute));
  return f;
}

// OK; Unimplemented for what the library says it does not support (its numbers 3000 to 3999); else
// Internal. Both with what was asked of the library and what it says.
absl::Status CheckDnn(const DnnFunctions& f, cudnnStatus_t status, absl::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  constexpr size_t kTextBytes = 512;
  char text[kTextBytes] = "";
  f.last_error(text, kTextBytes);
  const std::string message =
      absl::StrCat("cuDNN fails to ", what, ": ", f.status_text(status), " (",
                   static_cast<int>(status), ")", text[0] == 0 ? "" : ", ", text);
  const bool is_unsupported = static_cast<int>(status) / 1000 == 3;
  return is_unsupported ? absl::UnimplementedError(message) : absl::InternalError(message);
}

// An object of the backend API, until it is destroyed.
class Descriptor {
 public:
  static absl::StatusOr<Descriptor> Create(const DnnFunctions& f, cudnnBackendDescriptorType_t type,
                                           const char* name) {
    Descriptor made(f, name);
    WEFT_RETURN_IF_ERROR(
        CheckDnn(f, f.create_descriptor(type, &made.handle_), absl::StrCat("make ", name)));
    return made;
  }
  Descriptor(Descriptor&& other) noexcept
      : f_(other.f_), name_(other.name_), handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(f_, other.f_);
    std::swap(name_, other.name_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Descriptor() {
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
  absl::Status SetDescriptor(cudnnBackendAttributeName_t attribute, const Descriptor& value) {
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
  Descriptor(const DnnFunctions& f, const char* name) : f_(&f), name_(name) {}

  const DnnFunctions* f_;
  const char* name_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

cudnnDataType_t DnnTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    case DType::kBfloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

// Numbers of the tensors of a graph.
enum TensorId : int64_t { kLargeId = 1, kWeightsId, kSmallId, kBiasId, kSumsId };

// The operation graph of a convolution, with all that it is made of.
class ConvolutionGraph {
 public:
  static absl::StatusOr<ConvolutionGraph> Create(const DnnFunctions& f, cudnnHandle_t library,
                                                 const ConvolutionSpec& spec) {
    ConvolutionGraph made(f, spec);
    WEFT_RETURN_IF_ERROR(made.Build(library));
    return made;
  }

  const Descriptor& graph() const { return parts_.back(); }

 private:
  ConvolutionGraph(const DnnFunctions& f, const ConvolutionSpec& spec) : f_(&f), spec_(spec) {}

  absl::Status Build(cudnnHandle_t library) {
    const cudnnDataType_t type = DnnTypeOf(spec_.dtype);
    WEFT_ASSIGN_OR_RETURN(const size_t large, Tensor(spec_.large, kLargeId, type, false));
    WEFT_ASSIGN_OR_RETURN(const size_t weights, Tensor(spec_.weights, kWeightsId, type, false));
    WEFT_ASSIGN_OR_RETURN(const size_t small, Tensor(spec_.small, kSmallId, type, false));
    size_t images[2] = {large, small};
    size_t result = 0;  // where the bias goes
    if (spec_.has_bias) {
      size_t& computed = images[spec_.result == ConvolutionResult::kLargeImage ? 0 : 1];
      result = computed;
      WEFT_ASSIGN_OR_RETURN(computed, Tensor(spec_.computed(), kSumsId, CUDNN_DATA_FLOAT, true));
    }
    WEFT_ASSIGN_OR_RETURN(const size_t window, Window());
    WEFT_ASSIGN_OR_RETURN(const size_t convolution,
                          Operation(window, images[0], weights, images[1]));
    std::vector<cudnnBackendDescriptor_t> operations = {parts_[convolution].get()};
    if (spec_.has_bias) {
      const size_t sums = images[spec_.result == ConvolutionResult::kLargeImage ? 0 : 1];
      WEFT_ASSIGN_OR_RETURN(const size_t addition, Addition(sums, result));
      operations.push_back(parts_[addition].get());
    }
    WEFT_ASSIGN_OR_RETURN(
        Descriptor graph,
        Descriptor::Create(*f_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a graph"));
    WEFT_RETURN_IF_ERROR(graph.SetHandle(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, library));
    WEFT_RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   static_cast<int64_t>(operations.size()), operations.data()));
    return Keep(std::move(graph)).status();
  }

  // Finalizes a descriptor; returns its place in parts_.
  absl::StatusOr<size_t> Keep(Descriptor descriptor) {
    WEFT_RETURN_IF_ERROR(descriptor.Finalize());
    parts_.push_back(std::move(descriptor));
    return parts_.size() - 1;
  }

  absl::StatusOr<size_t> Tensor(const DnnTensor& layout, int64_t id, cudnnDataType_t type,
                                bool is_virtual) {
    WEFT_ASSIGN_OR_RETURN(Descriptor tensor,
                          Descriptor::Create(*f_, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor"));
    WEFT_RETURN_IF_ERROR(tensor.SetDataType(CUDNN_ATTR_TENSOR_DATA_TYPE, type));
    WEFT_RETURN_IF_ERROR(tensor.SetInts(CUDNN_ATTR_TENSOR_DIMENSIONS, layout.dims));
    WEFT_RETURN_IF_ERROR(tensor.SetInts(CUDNN_ATTR_TENSOR_STRIDES, layout.strides));
    WEFT_RETURN_IF_ERROR(tensor.SetInt(CUDNN_ATTR_TENSOR_UNIQUE_ID, id));
    WEFT_RETURN_IF_ERROR(
        tensor.SetInt(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, static_cast<int64_t>(kDnnAlignment)));
    if (is_virtual) {
      const bool yes = true;
      WEFT_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes));
    }
    return Keep(std::move(tensor));
  }

  absl::StatusOr<size_t> Window() {
    WEFT_ASSIGN_OR_RETURN(
        Descriptor window,
        Descriptor::Create(*f_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "a convolution"));
    WEFT_RETURN_IF_ERROR(window.SetDataType(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT));
    // Taps are not flipped.
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    WEFT_RETURN_IF_ERROR(
        window.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    WEFT_RETURN_IF_ERROR(window.SetInt(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
                                       static_cast<int64_t>(spec_.pads.size())));
    WEFT_RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_DILATIONS, spec_.dilations));
    WEFT_RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spec_.strides));
    WEFT_RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spec_.pads));
    WEFT_RETURN_IF_ERROR(window.SetInts(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spec_.pads));
    return Keep(std::move(window));
  }

  // What the operation of a result is called, and its attributes.
  struct OperationNames {
    cudnnBackendDescriptorType_t type;
    const char* name;
    cudnnBackendAttributeName_t window, large, weights, small, alpha, beta;
  };
  static OperationNames NamesOf(ConvolutionResult result) {
    switch (result) {
      case ConvolutionResult::kLargeImage:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                "the gradient of an input",
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
      case ConvolutionResult::kWeights:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                "the gradient of weights",
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
      default:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                "a forward convolution",
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    }
  }

  absl::StatusOr<size_t> Operation(size_t window, size_t large, size_t weights, size_t small) {
    const OperationNames names = NamesOf(spec_.result);
    WEFT_ASSIGN_OR_RETURN(Descriptor operation, Descriptor::Create(*f_, names.type, names.name));
    WEFT_RETURN_IF_ERROR(operation.SetDescriptor(names.window, parts_[window]));
    WEFT_RETURN_IF_ERROR(operation.SetDescriptor(names.large, parts_[large]));
    WEFT_RETURN_IF_ERROR(operation.SetDescriptor(names.weights, parts_[weights]));
    WEFT_RETURN_IF_ERROR(operation.SetDescriptor(names.small, parts_[small]));
    WEFT_RETURN_IF_ERROR(operation.SetFloat(names.alpha, 1));
    WEFT_RETURN_IF_ERROR(operation.SetFloat(names.beta, spec_.adds ? 1 : 0));
    return Keep(std::move(operation));
  }

  // result = sums + the bias of the channel.
  absl::StatusOr<size_t> Addition(size_t sums, size_t result) {
    std::vector<int64_t> dims(spec_.large.dims.size(), 1);
    dims[1] = spec_.computed().dims[1];
    WEFT_ASSIGN_OR_RETURN(const size_t bias, Tensor(DnnTensor::Dense(std::move(dims)), kBiasId,
                                                    DnnTypeOf(spec_.dtype), false));
    WEFT_ASSIGN_OR_RETURN(
        Descriptor add, Descriptor::Create(*f_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "an addition"));
    const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    WEFT_RETURN_IF_ERROR(add.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    WEFT_RETURN_IF_ERROR(add.SetDataType(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT));
    WEFT_ASSIGN_OR_RETURN(const size_t kind, Keep(std::move(add)));
    WEFT_ASSIGN_OR_RETURN(
        Descriptor operation,
        Descriptor::Create(*f_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "a sum with a bias"));
    WEFT_RETURN_IF_ERROR(
        operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, parts_[kind]));
    WEFT_RETURN_IF_ERROR(
        operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, parts_[sums]));
    WEFT_RETURN_IF_ERROR(
        operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, parts_[bias]));
    WEFT_RETURN_IF_ERROR(
        operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, parts_[result]));
    return Keep(std::move(operation));
  }

  const DnnFunctions* f_;
  ConvolutionSpec spec_;
  std::vector<Descriptor> parts_;  // the graph is the last
};

// ---- Which engines may be used.

// Whether an engine with this note gives other bits each time, or is less exact than `spec` says.
bool Excludes(cudnnBackendNumericalNote_t note, const ConvolutionSpec& spec) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
      return true;
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      return !spec.tf32;
    // Of float32 operands: TF32.
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      return spec.dtype == DType::kFloat32 && !spec.tf32;
    default:
      return false;
  }
}

absl::StatusOr<bool> FitsNotes(const DnnFunctions& f, const Descriptor& config,
                               const ConvolutionSpec& spec) {
  WEFT_ASSIGN_OR_RETURN(Descriptor engine,
                        Descriptor::Create(f, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine"));
  cudnnBackendDescriptor_t handle = engine.get();
  WEFT_RETURN_IF_ERROR(
      config.Get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle).status());
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {};
  WEFT_ASSIGN_OR_RETURN(const int64_t count,
                        engine.Get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes));
  return std::none_of(notes, notes + std::min<int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT),
                      [&](cudnnBackendNumericalNote_t note) { return Excludes(note, spec); });
}

// What the heuristic proposes for a graph, best first.
absl::StatusOr<std::vector<Descriptor>> ConfigsOf(const DnnFunctions& f, const Descriptor& graph,
                                                  cudnnBackendHeurMode_t mode) {
  WEFT_ASSIGN_OR_RETURN(Descriptor heuristic,
                        Descriptor::Create(f, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "a heuristic"));
  WEFT_RETURN_IF_ERROR(heuristic.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
  WEFT_RETURN_IF_ERROR(heuristic.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
  WEFT_RETURN_IF_ERROR(heuristic.Finalize());
  WEFT_ASSIGN_OR_RETURN(int64_t count, heuristic.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr));
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) {
    WEFT_ASSIGN_OR_RETURN(
        Descriptor config,
        Descriptor::Create(f, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine configuration"));
    handles.push_back(config.get());
    configs.push_back(std::move(config));
  }
  if (configs.empty()) return configs;
  WEFT_ASSIGN_OR_RETURN(count, heuristic.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, count, handles.data()));
  // It may fill fewer than it has announced.
  while (static_cast<int64_t>(configs.size()) > count) configs.pop_back();
  return configs;
}

// ---- The library.

// What plans of one device share. A handle belongs to one call at a time.
struct SharedHandle {
  SharedHandle(const DnnFunctions& functions, cudnnHandle_t handle)
      : f(functions), library(handle) {}
  ~SharedHandle() { f.destroy(library); }

  const DnnFunctions f;
  Mutex mutex;
  const cudnnHandle_t library;
};

// A plan that is finalized, and the workspace that it wants.
struct Plan {
  Descriptor descriptor;
  size_t workspace_bytes;
};

class CudnnConvolution final : public PreparedConvolution {
 public:
  CudnnConvolution(SharedHandle& shared, const ConvolutionSpec& spec, ConvolutionGraph graph,
                   Descriptor config, Plan plan)
      : shared_(shared),
        spec_(spec),
        graph_(std::move(graph)),
        config_(std::move(config)),
        plan_(std::move(plan)) {}

  size_t workspace_bytes() const override { return plan_.workspace_bytes; }

  absl::Status Run(const ConvolutionOperands& operands, void* workspace,
                   LaunchQueue queue) override {
    const DnnFunctions& f = shared_.f;
    if (packs_.empty() || !(operands == operands_) || workspace != workspace_) {
      WEFT_RETURN_IF_ERROR(Pack(operands, workspace));
    }
    MutexLock lock(shared_.mutex);
    WEFT_RETURN_IF_ERROR(
        CheckDnn(f, f.set_stream(shared_.library, static_cast<cudaStream_t>(queue.stream)),
                 "take a stream"));
    const cudnnStatus_t status =
        f.execute(shared_.library, plan_.descriptor.get(), packs_.back().get());
    if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
    const absl::Status failed = CheckDnn(f, status, absl::StrCat("compute ", spec_.ToString()));
    return absl::InternalError(failed.message());
  }

 private:
  // Says where operands lie. Programs give the same addresses each time.
  absl::Status Pack(const ConvolutionOperands& operands, void* workspace) {
    packs_.clear();
    std::vector<int64_t> ids = {kLargeId, kWeightsId, kSmallId};
    std::vector<void*> addresses = {operands.large, operands.weights, operands.small};
    if (spec_.has_bias) {
      ids.push_back(kBiasId);
      addresses.push_back(const_cast<void*>(operands.bias));
    }
    WEFT_ASSIGN_OR_RETURN(
        Descriptor pack,
        Descriptor::Create(shared_.f, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "operands"));
    WEFT_RETURN_IF_ERROR(pack.SetInts(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids));
    WEFT_RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                  static_cast<int64_t>(addresses.size()), addresses.data()));
    WEFT_RETURN_IF_ERROR(
        pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    WEFT_RETURN_IF_ERROR(pack.Finalize());
    packs_.push_back(std::move(pack));
    operands_ = operands;
    workspace_ = workspace;
    return absl::OkStatus();
  }

  SharedHandle& shared_;
  const ConvolutionSpec spec_;
  // What the plan was made of lives as long as it does.
  const ConvolutionGraph graph_;
  const Descriptor config_;
  const Plan plan_;
  std::vector<Descriptor> packs_;  // of operands_ and workspace_; none at first
  ConvolutionOperands operands_;
  void* workspace_ = nullptr;
};

class CudnnLibrary final : public Dnn {
 public:
  CudnnLibrary(const DnnFunctions& f, cudnnHandle_t handle, CudnnOptions options)
      : shared_(f, handle), options_(std::move(options)) {}

  absl::StatusOr<std::unique_ptr<PreparedConvolution>> Prepare(
      const ConvolutionSpec& spec) override {
    WEFT_RETURN_IF_ERROR(CheckConvolution(spec));
    WEFT_RETURN_IF_ERROR(options_.make_current());
    MutexLock lock(shared_.mutex);
    WEFT_ASSIGN_OR_RETURN(ConvolutionGraph graph,
                          ConvolutionGraph::Create(shared_.f, shared_.library, spec));
    std::string refusals;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      absl::StatusOr<std::vector<Descriptor>> configs = ConfigsOf(shared_.f, graph.graph(), mode);
      if (!configs.ok()) {
        // There may be none for such a graph; the other list is another question.
        refusals = std::string(configs.status().message());
        continue;
      }
      for (Descriptor& config : *configs) {
        WEFT_ASSIGN_OR_RETURN(std::optional<Plan> plan, TryConfig(spec, config, refusals));
        if (!plan.has_value()) continue;
        return std::make_unique<CudnnConvolution>(shared_, spec, std::move(graph),
                                                  std::move(config), *std::move(plan));
      }
    }
    return absl::UnimplementedError(
        absl::StrCat("cuDNN has no plan for ", spec.ToString(),
                     " that gives the same bits each time, as exact as is asked, within ",
                     options_.workspace_limit >> 20, " MiB of workspace",
                     refusals.empty() ? "" : absl::StrCat(" (", refusals, ")")));
  }

 private:
  // None where the configuration may not be used, or makes no plan; `refusals` then says why.
  absl::StatusOr<std::optional<Plan>> TryConfig(const ConvolutionSpec& spec,
                                                const Descriptor& config, std::string& refusals)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_.mutex) {
    const DnnFunctions& f = shared_.f;
    WEFT_ASSIGN_OR_RETURN(const bool fits, FitsNotes(f, config, spec));
    if (!fits) return std::nullopt;
    WEFT_ASSIGN_OR_RETURN(Descriptor plan,
                          Descriptor::Create(f, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan"));
    WEFT_RETURN_IF_ERROR(plan.SetHandle(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, shared_.library));
    WEFT_RETURN_IF_ERROR(plan.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    // A proposal that makes no plan on this card, which is how the library says so.
    if (const absl::Status status = plan.Finalize(); !status.ok()) {
      refusals = std::string(status.message());
      return std::nullopt;
    }
    int64_t bytes = 0;
    WEFT_RETURN_IF_ERROR(
        plan.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes).status());
    if (bytes < 0 || static_cast<size_t>(bytes) > options_.workspace_limit) {
      refusals = absl::StrCat("a plan wants ", bytes, " bytes of workspace");
      return std::nullopt;
    }
    return Plan{std::move(plan), static_cast<size_t>(bytes)};
  }

  SharedHandle shared_;
  const CudnnOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dnn>> OpenCudnn(const SymbolSource& symbols, CudnnOptions options) {
  WEFT_ASSIGN_OR_RETURN(const DnnFunctions f, FindDnnFunctions(symbols));
  WEFT_RETURN_IF_ERROR(options.make_current());
  cudnnHandle_t handle = nullptr;
  WEFT_RETURN_IF_ERROR(CheckDnn(f, f.create(&handle), "start"));
  return std::make_unique<CudnnLibrary>(f, handle, std::move(options));
}

}  // namespace weft::cuda
