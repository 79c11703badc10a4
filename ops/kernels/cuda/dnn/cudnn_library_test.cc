// What cudnn_library.cc says to the library, held against the library's documentation: functions of
// our own in place of the library's keep the descriptors, refuse what the library would refuse, and
// compute on the host what the descriptors mean.
#include "ops/kernels/cuda/dnn/cudnn_library.h"

#include <cudnn.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weft::cuda {
namespace {

// ---- The library's objects. A real descriptor is a pointer to one of these here.

struct FakeDescriptor {
  explicit FakeDescriptor(cudnnBackendDescriptorType_t of_type) : type(of_type) {}

  cudnnBackendDescriptorType_t type;
  std::map<int, std::vector<char>> values;
  std::map<int, cudnnBackendAttributeType_t> types;
  bool is_final = false;
  int engine = -1;  // of an engine, and of a configuration

  template <typename T>
  std::vector<T> All(int attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> all(found->second.size() / sizeof(T));
    std::memcpy(all.data(), found->second.data(), found->second.size());
    return all;
  }
  template <typename T>
  T One(int attribute) const {
    const std::vector<T> all = All<T>(attribute);
    EXPECT_EQ(all.size(), 1) << "attribute " << attribute;
    return all.empty() ? T() : all[0];
  }
  const FakeDescriptor& Part(int attribute) const {
    static const FakeDescriptor* const none = new FakeDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const auto* part = static_cast<FakeDescriptor*>(One<cudnnBackendDescriptor_t>(attribute));
    return part == nullptr ? *none : *part;
  }
};

struct FakeEngine {
  std::vector<cudnnBackendNumericalNote_t> notes = {};
  int64_t workspace = 0;
  bool makes_plans = true;
};

// What the functions saw, and what they answer. Reset by each test.
struct FakeDnn {
  int alive = 0;  // objects that are not destroyed
  cudnnStatus_t create_status = CUDNN_STATUS_SUCCESS;
  cudnnStatus_t graph_status = CUDNN_STATUS_SUCCESS;
  cudnnStatus_t execute_status = CUDNN_STATUS_SUCCESS;
  std::vector<FakeEngine> engines = {{}};
  // Engines that each heuristic proposes.
  std::map<cudnnBackendHeurMode_t, std::vector<int>> proposals = {{CUDNN_HEUR_MODE_A, {0}}};
  int packs = 0;
  int executed_engine = -1;
  void* workspace = nullptr;
  cudaStream_t stream = nullptr;
};
FakeDnn* fake = nullptr;

FakeDescriptor& Of(cudnnBackendDescriptor_t descriptor) {
  return *static_cast<FakeDescriptor*>(descriptor);
}

cudnnStatus_t FakeCreate(cudnnHandle_t* handle) {
  if (fake->create_status != CUDNN_STATUS_SUCCESS) return fake->create_status;
  *handle = reinterpret_cast<cudnnHandle_t>(fake);
  ++fake->alive;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t FakeDestroy(cudnnHandle_t) {
  --fake->alive;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t FakeSetStream(cudnnHandle_t, cudaStream_t stream) {
  fake->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
const char* FakeErrorString(cudnnStatus_t) { return "a status"; }
void FakeLastError(char* text, size_t size) { std::strncpy(text, "why", size); }

cudnnStatus_t FakeCreateDescriptor(cudnnBackendDescriptorType_t type,
                                   cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new FakeDescriptor(type);
  ++fake->alive;
  if (type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) ++fake->packs;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t FakeDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete &Of(descriptor);
  --fake->alive;
  return CUDNN_STATUS_SUCCESS;
}

size_t BytesOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;  // enumerations and float
  }
}

cudnnStatus_t FakeSet(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  FakeDescriptor& of = Of(descriptor);
  if (of.is_final || count < 1) return CUDNN_STATUS_BAD_PARAM;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* parts = static_cast<const cudnnBackendDescriptor_t*>(values);
    for (int64_t i = 0; i < count; ++i) {
      const bool is_proposal = Of(parts[i]).type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
      if (!Of(parts[i]).is_final && !is_proposal) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
  }
  const auto* bytes = static_cast<const char*>(values);
  of.values[name].assign(bytes, bytes + static_cast<size_t>(count) * BytesOf(type));
  of.types[name] = type;
  return CUDNN_STATUS_SUCCESS;
}

// Attributes that the documentation demands, with their types.
std::map<int, cudnnBackendAttributeType_t> Demanded(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
              {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64}};
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
              {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
              {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64}};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE},
              {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return {{CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
              {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE},
              {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR}};
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR},
              {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR}};
    default:
      return {};
  }
}

cudnnStatus_t FakeFinalize(cudnnBackendDescriptor_t descriptor) {
  FakeDescriptor& of = Of(descriptor);
  for (const auto& [attribute, type] : Demanded(of.type)) {
    const auto found = of.types.find(attribute);
    if (found == of.types.end() || found->second != type) return CUDNN_STATUS_BAD_PARAM;
  }
  if (of.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
      fake->graph_status != CUDNN_STATUS_SUCCESS) {
    return fake->graph_status;
  }
  if (of.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    of.engine = of.Part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine;
    if (!fake->engines[of.engine].makes_plans) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  of.is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

// The graph that the last heuristic was asked about.
FakeDescriptor* asked_graph = nullptr;

cudnnStatus_t FakeGet(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t, int64_t capacity, int64_t* count, void* values) {
  const FakeDescriptor& of = Of(descriptor);
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      if (!of.is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      const auto mode = of.One<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
      asked_graph = static_cast<FakeDescriptor*>(
          of.One<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
      const std::vector<int>& proposals = fake->proposals[mode];
      *count = static_cast<int64_t>(proposals.size());
      auto* const configs = static_cast<cudnnBackendDescriptor_t*>(values);
      for (int64_t i = 0; i < std::min(capacity, *count); ++i) {
        Of(configs[i]).engine = proposals[i];
      }
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      *count = 1;
      Of(*static_cast<cudnnBackendDescriptor_t*>(values)).engine = of.engine;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      const auto& notes = fake->engines[of.engine].notes;
      *count = static_cast<int64_t>(notes.size());
      std::copy(notes.begin(), notes.end(), static_cast<cudnnBackendNumericalNote_t*>(values));
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *count = 1;
      *static_cast<int64_t*>(values) = fake->engines[of.engine].workspace;
      return CUDNN_STATUS_SUCCESS;
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
}

// ---- What descriptors mean, in float32 on the host. Two image axes.

struct HostTensor {
  std::vector<int64_t> dims, strides;
  float* data = nullptr;
  float& At(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return data[a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]];
  }
};

HostTensor HostTensorOf(const FakeDescriptor& tensor, const std::map<int64_t, void*>& addresses,
                        std::vector<float>& sums) {
  HostTensor host;
  host.dims = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  host.strides = tensor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (!tensor.All<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL).empty()) {
    sums.resize(static_cast<size_t>(host.dims[0] * host.strides[0]));
    host.data = sums.data();
    return host;
  }
  const auto found = addresses.find(tensor.One<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  EXPECT_NE(found, addresses.end()) << "a tensor without an address";
  if (found != addresses.end()) host.data = static_cast<float*>(found->second);
  return host;
}

struct OperationAttributes {
  int window, large, weights, small, alpha, beta;
};
OperationAttributes AttributesOf(cudnnBackendDescriptorType_t type) {
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
    return {702, 704, 703, 705, 700, 701};
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    return {708, 710, 709, 711, 706, 707};
  }
  return {714, 716, 715, 717, 712, 713};
}

void Convolve(const FakeDescriptor& operation, const std::map<int64_t, void*>& addresses,
              std::vector<float>& sums) {
  const OperationAttributes names = AttributesOf(operation.type);
  const FakeDescriptor& window = operation.Part(names.window);
  EXPECT_EQ(window.One<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE),
            CUDNN_CROSS_CORRELATION);
  const auto pads = window.All<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto steps = window.All<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto dilations = window.All<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const HostTensor large = HostTensorOf(operation.Part(names.large), addresses, sums);
  const HostTensor weights = HostTensorOf(operation.Part(names.weights), addresses, sums);
  const HostTensor small = HostTensorOf(operation.Part(names.small), addresses, sums);
  const bool forward = names.large == 704, data = names.large == 710;
  const HostTensor& result = forward ? small : data ? large : weights;
  const float alpha = operation.One<float>(names.alpha);
  const float beta = operation.One<float>(names.beta);
  for (int64_t i = 0; i < result.dims[0] * result.strides[0]; ++i) {
    result.data[i] = beta == 0 ? 0 : result.data[i] * beta;
  }
  const int64_t groups = large.dims[1] / weights.dims[1];
  const int64_t of_group = small.dims[1] / groups;
  for (int64_t n = 0; n < small.dims[0]; ++n)
    for (int64_t k = 0; k < small.dims[1]; ++k)
      for (int64_t i = 0; i < small.dims[2]; ++i)
        for (int64_t j = 0; j < small.dims[3]; ++j)
          for (int64_t c = 0; c < weights.dims[1]; ++c)
            for (int64_t r = 0; r < weights.dims[2]; ++r)
              for (int64_t s = 0; s < weights.dims[3]; ++s) {
                const int64_t y = i * steps[0] - pads[0] + r * dilations[0];
                const int64_t x = j * steps[1] - pads[1] + s * dilations[1];
                if (y < 0 || y >= large.dims[2] || x < 0 || x >= large.dims[3]) continue;
                float& of_large = large.At(n, k / of_group * weights.dims[1] + c, y, x);
                float& of_weights = weights.At(k, c, r, s);
                float& of_small = small.At(n, k, i, j);
                if (forward) of_small += alpha * of_large * of_weights;
                if (data) of_large += alpha * of_small * of_weights;
                if (!forward && !data) of_weights += alpha * of_small * of_large;
              }
}

void AddBias(const FakeDescriptor& operation, const std::map<int64_t, void*>& addresses,
             std::vector<float>& sums) {
  EXPECT_EQ(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                .One<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE),
            CUDNN_POINTWISE_ADD);
  const HostTensor x =
      HostTensorOf(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), addresses, sums);
  const HostTensor b =
      HostTensorOf(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), addresses, sums);
  const HostTensor y =
      HostTensorOf(operation.Part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), addresses, sums);
  EXPECT_EQ(b.dims, (std::vector<int64_t>{1, y.dims[1], 1, 1}));
  for (int64_t n = 0; n < y.dims[0]; ++n)
    for (int64_t c = 0; c < y.dims[1]; ++c)
      for (int64_t i = 0; i < y.dims[2]; ++i)
        for (int64_t j = 0; j < y.dims[3]; ++j) {
          y.At(n, c, i, j) = x.At(n, c, i, j) + b.At(0, c, 0, 0);
        }
}

cudnnStatus_t FakeExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                          cudnnBackendDescriptor_t pack) {
  if (!Of(plan).is_final || !Of(pack).is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  if (fake->execute_status != CUDNN_STATUS_SUCCESS) return fake->execute_status;
  fake->executed_engine = Of(plan).engine;
  fake->workspace = Of(pack).One<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const auto ids = Of(pack).All<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = Of(pack).All<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != pointers.size()) return CUDNN_STATUS_BAD_PARAM;
  std::map<int64_t, void*> addresses;
  for (size_t i = 0; i < ids.size(); ++i) addresses[ids[i]] = pointers[i];
  std::vector<float> sums;
  for (cudnnBackendDescriptor_t operation :
       asked_graph->All<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    if (Of(operation).type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
      AddBias(Of(operation), addresses, sums);
    } else {
      Convolve(Of(operation), addresses, sums);
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

absl::StatusOr<void*> FakeSymbol(const char* name) {
  static const auto* const functions = new std::map<std::string, void*>{
      {"cudnnCreate", reinterpret_cast<void*>(FakeCreate)},
      {"cudnnDestroy", reinterpret_cast<void*>(FakeDestroy)},
      {"cudnnSetStream", reinterpret_cast<void*>(FakeSetStream)},
      {"cudnnGetErrorString", reinterpret_cast<void*>(FakeErrorString)},
      {"cudnnGetLastErrorString", reinterpret_cast<void*>(FakeLastError)},
      {"cudnnBackendCreateDescriptor", reinterpret_cast<void*>(FakeCreateDescriptor)},
      {"cudnnBackendDestroyDescriptor", reinterpret_cast<void*>(FakeDestroyDescriptor)},
      {"cudnnBackendSetAttribute", reinterpret_cast<void*>(FakeSet)},
      {"cudnnBackendGetAttribute", reinterpret_cast<void*>(FakeGet)},
      {"cudnnBackendFinalize", reinterpret_cast<void*>(FakeFinalize)},
      {"cudnnBackendExecute", reinterpret_cast<void*>(FakeExecute)},
  };
  const auto found = functions->find(name);
  if (found != functions->end()) return found->second;
  return absl::FailedPreconditionError(absl::StrCat("no function ", name));
}

class CudnnLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override { fake = &library_; }
  void TearDown() override { EXPECT_EQ(library_.alive, 0) << "objects that nobody destroyed"; }

  static std::unique_ptr<Dnn> Open(size_t workspace_limit = 1000) {
    CudnnOptions options;
    options.workspace_limit = workspace_limit;
    auto opened = OpenCudnn(FakeSymbol, std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }
  // A row of `large` elements and two taps.
  static ConvolutionSpec Row(ConvolutionResult result, int64_t large, int64_t pad, int64_t stride) {
    ConvolutionSpec spec;
    spec.result = result;
    spec.large = DnnTensor::Dense({1, 1, 1, large});
    spec.weights = DnnTensor::Dense({1, 1, 1, 2});
    spec.small = DnnTensor::Dense({1, 1, 1, (large + 2 * pad - 2) / stride + 1});
    spec.pads = {0, pad};
    spec.strides = {1, stride};
    spec.dilations = {1, 1};
    return spec;
  }
  // The engine that a row is computed by; -1 with the error's text.
  int EngineOf(const ConvolutionSpec& spec, std::string* error = nullptr) {
    const std::unique_ptr<Dnn> dnn = Open();
    const auto prepared = dnn->Prepare(spec);
    if (!prepared.ok()) {
      EXPECT_EQ(prepared.status().code(), absl::StatusCode::kUnimplemented) << prepared.status();
      if (error != nullptr) *error = std::string(prepared.status().message());
      return -1;
    }
    float x[8] = {}, w[8] = {}, y[8] = {};
    EXPECT_TRUE((*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
    return library_.executed_engine;
  }

  FakeDnn library_;
};

// [1, 2, 3] with a zero on each side, times [10, 1]: 0*10+1, 1*10+2, 2*10+3, 3*10+0.
TEST_F(CudnnLibraryTest, ComputesTheSmallImage) {
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kSmallImage, 3, 1, 1));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  float x[] = {1, 2, 3}, w[] = {10, 1}, y[] = {7, 7, 7, 7};
  ASSERT_TRUE((*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(y, y + 4)), (std::vector<float>{1, 12, 23, 30}));
  EXPECT_EQ(library_.stream, reinterpret_cast<cudaStream_t>(&library_));
}

// Element 0 is tap 0 of y[0]; element 1 tap 1 of y[0]; and so on: stride 2 without overlap.
TEST_F(CudnnLibraryTest, ComputesTheLargeImage) {
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kLargeImage, 4, 0, 2));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  float x[] = {7, 7, 7, 7}, w[] = {10, 1}, y[] = {2, 3};
  ASSERT_TRUE((*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(x, x + 4)), (std::vector<float>{20, 2, 30, 3}));
}

// dW[0] = 1*5 + 2*7, dW[1] = 2*5 + 3*7.
TEST_F(CudnnLibraryTest, ComputesTheWeights) {
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kWeights, 3, 0, 1));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  float x[] = {1, 2, 3}, w[] = {9, 9}, y[] = {5, 7};
  ASSERT_TRUE((*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(w, w + 2)), (std::vector<float>{19, 31}));
}

TEST_F(CudnnLibraryTest, AddsABiasOrToTheResult) {
  const std::unique_ptr<Dnn> dnn = Open();
  ConvolutionSpec spec = Row(ConvolutionResult::kSmallImage, 3, 0, 1);
  spec.has_bias = true;
  const auto with_bias = dnn->Prepare(spec);
  ASSERT_TRUE(with_bias.ok()) << with_bias.status();
  float x[] = {1, 2, 3}, w[] = {10, 1}, y[] = {7, 8}, bias[] = {0.5};
  ASSERT_TRUE((*with_bias)->Run({x, w, y, bias}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(y, y + 2)), (std::vector<float>{12.5, 23.5}));
  spec.has_bias = false;
  spec.adds = true;
  const auto adding = dnn->Prepare(spec);
  ASSERT_TRUE(adding.ok()) << adding.status();
  ASSERT_TRUE((*adding)->Run({x, w, y, nullptr}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(y, y + 2)), (std::vector<float>{24.5, 46.5}));
  spec.result = ConvolutionResult::kLargeImage;
  spec.adds = false;
  spec.has_bias = true;
  const auto large = dnn->Prepare(spec);
  ASSERT_TRUE(large.ok()) << large.status();
  float dy[] = {1, 2};
  ASSERT_TRUE((*large)->Run({x, w, dy, bias}, nullptr, {&library_}).ok());
  EXPECT_EQ((std::vector<float>(x, x + 3)), (std::vector<float>{10.5, 21.5, 2.5}));
}

TEST_F(CudnnLibraryTest, PassesOverEnginesThatGiveOtherBits) {
  library_.engines = {{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
                      {{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP, CUDNN_NUMERICAL_NOTE_WINOGRAD}},
                      {{CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}},
                      {{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}}};
  library_.proposals[CUDNN_HEUR_MODE_A] = {0, 1, 2, 3};
  EXPECT_EQ(EngineOf(Row(ConvolutionResult::kWeights, 3, 0, 1)), 3);
}

TEST_F(CudnnLibraryTest, TakesTensorCoresOfFloat32OnlyForTf32) {
  library_.engines = {
      {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}}, {}};
  library_.proposals[CUDNN_HEUR_MODE_A] = {0, 1};
  ConvolutionSpec spec = Row(ConvolutionResult::kSmallImage, 3, 0, 1);
  EXPECT_EQ(EngineOf(spec), 1);
  spec.tf32 = true;
  EXPECT_EQ(EngineOf(spec), 0);
}

TEST_F(CudnnLibraryTest, TakesTensorCoresOf16Bits) {
  library_.engines = {{{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}}};
  ConvolutionSpec spec = Row(ConvolutionResult::kSmallImage, 3, 0, 1);
  spec.dtype = DType::kBfloat16;
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(spec);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const auto operations = asked_graph->All<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const FakeDescriptor& x = Of(operations.at(0)).Part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
  EXPECT_EQ(x.One<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE), CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(Of(operations.at(0))
                .Part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC)
                .One<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE),
            CUDNN_DATA_FLOAT);
}

TEST_F(CudnnLibraryTest, PassesOverPlansThatFailOrWantTooMuch) {
  library_.engines = {{{}, 0, false}, {{}, 1001}, {{}, 1000}};
  library_.proposals = {{CUDNN_HEUR_MODE_A, {0, 1}}, {CUDNN_HEUR_MODE_FALLBACK, {2}}};
  EXPECT_EQ(EngineOf(Row(ConvolutionResult::kSmallImage, 3, 0, 1)), 2);
  const std::unique_ptr<Dnn> dnn = Open();
  EXPECT_EQ((*dnn->Prepare(Row(ConvolutionResult::kSmallImage, 3, 0, 1)))->workspace_bytes(), 1000);
}

TEST_F(CudnnLibraryTest, SaysWhyThereIsNoPlan) {
  library_.engines = {{{}, 0, false}};
  std::string error;
  EXPECT_EQ(EngineOf(Row(ConvolutionResult::kSmallImage, 3, 0, 1), &error), -1);
  EXPECT_TRUE(absl::StrContains(error, "cuDNN has no plan for float32 Conv [1,1,1,3]")) << error;
  EXPECT_TRUE(absl::StrContains(error, "cuDNN fails to finalize a plan: a status (3000), why"))
      << error;
  library_.graph_status = CUDNN_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(EngineOf(Row(ConvolutionResult::kSmallImage, 3, 0, 1)), -1);
}

TEST_F(CudnnLibraryTest, DescribesAddressesOncePerPlace) {
  library_.engines = {{{}, 512}};
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kSmallImage, 3, 0, 1));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  float x[] = {1, 2, 3}, w[] = {10, 1}, y[2], other[2];
  alignas(256) char workspace[512];
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE((*prepared)->Run({x, w, y, nullptr}, workspace, {&library_}).ok());
  }
  EXPECT_EQ(library_.packs, 1);
  EXPECT_EQ(library_.workspace, workspace);
  ASSERT_TRUE((*prepared)->Run({x, w, other, nullptr}, workspace, {&library_}).ok());
  EXPECT_EQ(library_.packs, 2);
  EXPECT_EQ(other[1], 23);
}

TEST_F(CudnnLibraryTest, SaysWhatTheLibraryRefuses) {
  library_.create_status = CUDNN_STATUS_NOT_INITIALIZED;
  const auto opened = OpenCudnn(FakeSymbol);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(opened.status().message(), "cuDNN fails to start: a status"));
  library_.create_status = CUDNN_STATUS_SUCCESS;
  const auto lacking = OpenCudnn([](const char* name) -> absl::StatusOr<void*> {
    if (std::string(name) == "cudnnBackendExecute")
      return absl::FailedPreconditionError("lacks it");
    return FakeSymbol(name);
  });
  EXPECT_EQ(lacking.status().message(), "lacks it");
  const std::unique_ptr<Dnn> dnn = Open();
  const auto prepared = dnn->Prepare(Row(ConvolutionResult::kSmallImage, 3, 0, 1));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  library_.execute_status = CUDNN_STATUS_NOT_SUPPORTED;
  float x[3] = {}, w[2] = {}, y[2] = {};
  const absl::Status run = (*prepared)->Run({x, w, y, nullptr}, nullptr, {&library_});
  EXPECT_EQ(run.code(), absl::StatusCode::kInternal) << "a step cannot go another way";
  EXPECT_TRUE(absl::StrContains(run.message(), "cuDNN fails to compute float32 Conv")) << run;
}

}  // namespace
}  // namespace weft::cuda
