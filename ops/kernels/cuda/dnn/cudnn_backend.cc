#include "ops/kernels/cuda/dnn/cudnn_backend.h"

#include <algorithm>
#include <optional>

namespace weft::cuda {
namespace {

// Whether an engine with this note gives other bits each time, or is less exact than `laws` allow.
bool Excludes(cudnnBackendNumericalNote_t note, const EngineLaws& laws) {
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
      return !laws.down_converts;
    // Of float32 operands: TF32.
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      return !laws.tensor_cores;
    default:
      return false;
  }
}

absl::StatusOr<bool> FitsNotes(const DnnFunctions& f, const DnnDescriptor& config,
                               const EngineLaws& laws) {
  WEFT_ASSIGN_OR_RETURN(DnnDescriptor engine,
                        DnnDescriptor::Create(f, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "an engine"));
  cudnnBackendDescriptor_t handle = engine.get();
  WEFT_RETURN_IF_ERROR(
      config.Get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle).status());
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT] = {};
  WEFT_ASSIGN_OR_RETURN(const int64_t count,
                        engine.Get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes));
  return std::none_of(notes, notes + std::min<int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT),
                      [&](cudnnBackendNumericalNote_t note) { return Excludes(note, laws); });
}

// What the heuristic proposes for a graph, best first.
absl::StatusOr<std::vector<DnnDescriptor>> ConfigsOf(const DnnFunctions& f,
                                                     const DnnDescriptor& graph,
                                                     cudnnBackendHeurMode_t mode) {
  WEFT_ASSIGN_OR_RETURN(
      DnnDescriptor heuristic,
      DnnDescriptor::Create(f, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "a heuristic"));
  WEFT_RETURN_IF_ERROR(heuristic.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
  WEFT_RETURN_IF_ERROR(heuristic.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
  WEFT_RETURN_IF_ERROR(heuristic.Finalize());
  WEFT_ASSIGN_OR_RETURN(int64_t count, heuristic.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr));
  std::vector<DnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) {
    WEFT_ASSIGN_OR_RETURN(
        DnnDescriptor config,
        DnnDescriptor::Create(f, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine configuration"));
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

// None where the configuration may not be used, or makes no plan; `refusals` then says why.
absl::StatusOr<std::optional<DnnPlan>> TryConfig(DnnHandle& shared, DnnDescriptor& config,
                                                 const EngineLaws& laws, size_t workspace_limit,
                                                 std::string& refusals) {
  const DnnFunctions& f = shared.f;
  WEFT_ASSIGN_OR_RETURN(const bool fits, FitsNotes(f, config, laws));
  if (!fits) return std::nullopt;
  WEFT_ASSIGN_OR_RETURN(
      DnnDescriptor plan,
      DnnDescriptor::Create(f, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan"));
  WEFT_RETURN_IF_ERROR(plan.SetHandle(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, shared.library));
  WEFT_RETURN_IF_ERROR(plan.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
  // A proposal that makes no plan on this card, which is how the library says so.
  if (const absl::Status status = plan.Finalize(); !status.ok()) {
    refusals = std::string(status.message());
    return std::nullopt;
  }
  int64_t bytes = 0;
  WEFT_RETURN_IF_ERROR(
      plan.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes).status());
  if (bytes < 0 || static_cast<size_t>(bytes) > workspace_limit) {
    refusals = absl::StrCat("a plan wants ", bytes, " bytes of workspace");
    return std::nullopt;
  }
  return DnnPlan{std::move(config), std::move(plan), static_cast<size_t>(bytes)};
}

}  // namespace

absl::StatusOr<DnnFunctions> FindDnnFunctions(const SymbolSource& symbols) {
  DnnFunctions f;
  WEFT_RETURN_IF_ERROR(BindSymbol(symbols, "cudnnGetVersion", f.version));
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

absl::StatusOr<DnnPlan> FindPlan(DnnHandle& shared, const DnnDescriptor& graph,
                                 const EngineLaws& laws, size_t workspace_limit,
                                 const std::string& what) {
  std::string refusals;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    absl::StatusOr<std::vector<DnnDescriptor>> configs = ConfigsOf(shared.f, graph, mode);
    if (!configs.ok()) {
      // There may be none for such a graph; the other list is another question.
      refusals = std::string(configs.status().message());
      continue;
    }
    for (DnnDescriptor& config : *configs) {
      WEFT_ASSIGN_OR_RETURN(std::optional<DnnPlan> plan,
                            TryConfig(shared, config, laws, workspace_limit, refusals));
      if (plan.has_value()) return *std::move(plan);
    }
  }
  return absl::UnimplementedError(absl::StrCat(
      "cuDNN has no plan for ", what,
      " that gives the same bits each time, as exact as is asked, within ", workspace_limit >> 20,
      " MiB of workspace", refusals.empty() ? "" : absl::StrCat(" (", refusals, ")")));
}

absl::StatusOr<size_t> DnnGraph::Keep(DnnDescriptor descriptor) {
  WEFT_RETURN_IF_ERROR(descriptor.Finalize());
  parts_.push_back(std::move(descriptor));
  return parts_.size() - 1;
}

absl::StatusOr<size_t> DnnGraph::Tensor(const DnnTensor& layout, int64_t id, cudnnDataType_t type,
                                        TensorKind kind) {
  WEFT_ASSIGN_OR_RETURN(DnnDescriptor tensor,
                        DnnDescriptor::Create(*f_, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor"));
  WEFT_RETURN_IF_ERROR(tensor.SetDataType(CUDNN_ATTR_TENSOR_DATA_TYPE, type));
  WEFT_RETURN_IF_ERROR(tensor.SetInts(CUDNN_ATTR_TENSOR_DIMENSIONS, layout.dims));
  WEFT_RETURN_IF_ERROR(tensor.SetInts(CUDNN_ATTR_TENSOR_STRIDES, layout.strides));
  WEFT_RETURN_IF_ERROR(tensor.SetInt(CUDNN_ATTR_TENSOR_UNIQUE_ID, id));
  WEFT_RETURN_IF_ERROR(
      tensor.SetInt(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, static_cast<int64_t>(kDnnAlignment)));
  if (kind != TensorKind::kOperand) {
    const bool yes = true;
    WEFT_RETURN_IF_ERROR(tensor.Set(
        kind == TensorKind::kVirtual ? CUDNN_ATTR_TENSOR_IS_VIRTUAL : CUDNN_ATTR_TENSOR_IS_BY_VALUE,
        CUDNN_TYPE_BOOLEAN, 1, &yes));
  }
  return Keep(std::move(tensor));
}

absl::Status DnnGraph::Finish(cudnnHandle_t library, const std::vector<size_t>& operations) {
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const size_t place : operations) handles.push_back(parts_[place].get());
  WEFT_ASSIGN_OR_RETURN(
      DnnDescriptor graph,
      DnnDescriptor::Create(*f_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "a graph"));
  WEFT_RETURN_IF_ERROR(graph.SetHandle(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, library));
  WEFT_RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 static_cast<int64_t>(handles.size()), handles.data()));
  return Keep(std::move(graph)).status();
}

absl::Status DnnRunner::Run(const std::vector<int64_t>& ids, const std::vector<void*>& addresses,
                            void* workspace, LaunchQueue queue) {
  const DnnFunctions& f = shared_.f;
  if (packs_.empty() || addresses != addresses_ || workspace != workspace_) {
    WEFT_RETURN_IF_ERROR(Pack(ids, addresses, workspace));
  }
  MutexLock lock(shared_.mutex);
  WEFT_RETURN_IF_ERROR(CheckDnn(
      f, f.set_stream(shared_.library, static_cast<cudaStream_t>(queue.stream)), "take a stream"));
  const cudnnStatus_t status =
      f.execute(shared_.library, plan_.descriptor.get(), packs_.back().get());
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  const absl::Status failed = CheckDnn(f, status, absl::StrCat("compute ", what_));
  return absl::InternalError(failed.message());
}

absl::Status DnnRunner::Pack(const std::vector<int64_t>& ids, const std::vector<void*>& addresses,
                             void* workspace) {
  packs_.clear();
  WEFT_ASSIGN_OR_RETURN(
      DnnDescriptor pack,
      DnnDescriptor::Create(shared_.f, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "operands"));
  WEFT_RETURN_IF_ERROR(pack.SetInts(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids));
  WEFT_RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                static_cast<int64_t>(addresses.size()), addresses.data()));
  WEFT_RETURN_IF_ERROR(
      pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
  WEFT_RETURN_IF_ERROR(pack.Finalize());
  packs_.push_back(std::move(pack));
  addresses_ = addresses;
  workspace_ = workspace;
  return absl::OkStatus();
}

}  // namespace weft::cuda
