// Fused nodes on a machine where nothing can compile them: they are refused when a program is
// prepared, which is before its first step.
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/fusion/fuse_regions.h"
#include "ops/fusion/fused_node.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/test_tensors.h"
#include "tensor/cuda/cuda_libraries.h"
#include "tensor/testing/fake_library_opener.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const bool schema_is_known = OpRegistry::Global().Register(FusedSchema()).ok();

// What NVRTC's provider meets where the library is not to be had.
absl::StatusOr<cuda::KernelCompiler*> NvrtcNowhere(Device&) {
  FakeLibraryOpener opener;
  return CudaLibrary::Open(CudaLibraryKind::kNvrtc, opener).status();
}
// Where a file of its name is another library.
absl::StatusOr<cuda::KernelCompiler*> NvrtcIsAnotherLibrary(Device&) {
  FakeLibraryOpener opener;
  opener.Add("libnvrtc.so.13", {});
  return CudaLibrary::Open(CudaLibraryKind::kNvrtc, opener).status();
}

class FusedTest : public ::testing::Test {
 protected:
  FusedTest() {
    const Tensor x = RandomTensor({3, 5}, 1);
    const ValueId input =
        graph_.AddInput("x", {ValueKind::kTensor, x.dtype(), SymbolicShape(x.shape())});
    GraphBuilder builder(graph_);
    graph_.AddOutput(builder.Op("Exp", {builder.Op("Relu", {input})}));
    EXPECT_TRUE(builder.status().ok()) << builder.status();
    const auto counts = FuseRegions(graph_, *FindFusionRules(DeviceKind::kCuda));
    EXPECT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ(graph_.num_nodes(), 1) << graph_.DebugString();
    const Node& fused = graph_.node(graph_.node_ids()[0]);
    case_ = {.domain = fused.domain,
             .op = fused.op,
             .attributes = fused.attributes,
             .inputs = {x},
             .outputs = {true}};
  }
  ~FusedTest() override { cuda::SetKernelCompilerProvider(nullptr); }

  absl::Status Refusal(cuda::KernelCompilerProvider provider) const {
    cuda::SetKernelCompilerProvider(provider);
    return RunOnEmulatedGpu(case_).status();
  }

  Graph graph_;
  OpCase case_;
};

TEST_F(FusedTest, WithoutNvrtcTheRefusalSaysWhatWhereAndWhatToDo) {
  ASSERT_TRUE(schema_is_known);
  const absl::Status refused = Refusal(NvrtcNowhere);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("the fused nodes 'Relu' (Relu), 'Exp' (Exp): "), HasSubstr("NVRTC"),
                    HasSubstr("libnvrtc.so.13"), HasSubstr("install the CUDA toolkit"),
                    HasSubstr("; or leave out --fuse auto")));
}

TEST_F(FusedTest, ALibraryThatDoesNotFitIsNamed) {
  const absl::Status refused = Refusal(NvrtcIsAnotherLibrary);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(HasSubstr("NVRTC of unknown version (libnvrtc.so.13) has no function nvrtcVersion"),
            HasSubstr("; or leave out --fuse auto")));
}

TEST_F(FusedTest, ABuildWithoutNvrtcSaysSo) {
  const absl::Status refused = Refusal(nullptr);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("built without it (--config=cuda)"),
                                                    HasSubstr("; or leave out --fuse auto")));
}

}  // namespace
}  // namespace weft::testing
