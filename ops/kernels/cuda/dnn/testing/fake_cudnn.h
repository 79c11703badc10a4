// A cuDNN of our own: what ops/kernels/cuda/dnn says to the library, held against the library's
// documentation. It keeps descriptors, refuses what the library would refuse, and computes on the
// host what they mean. Only where cudnn.h is.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_TESTING_FAKE_CUDNN_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_TESTING_FAKE_CUDNN_H_

#include <cudnn.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace weft::cuda {

// An object of the library: a real descriptor is a pointer to one of these here.
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
  size_t version = 91900;
  float never = 0;  // what keys that are not attended get
  int executed_engine = -1;
  void* workspace = nullptr;
  cudaStream_t stream = nullptr;
};
// The one that is asked; set by each test, and used by one thread at a time.
extern FakeDnn* fake;
// The graph that the last heuristic was asked about.
extern FakeDescriptor* asked_graph;

FakeDescriptor& Of(cudnnBackendDescriptor_t descriptor);

// The library's functions, as SymbolSource finds them: convolutions of two image axes in float32,
// attention in bfloat16, normalizations.
absl::StatusOr<void*> FakeSymbol(const char* name);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_TESTING_FAKE_CUDNN_H_
