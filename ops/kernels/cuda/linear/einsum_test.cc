// Einsum on the emulated GPU, with a library that computes products there.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

OpCase EinsumCase(const std::string& equation, const std::vector<Shape>& shapes,
                  DType dtype = DType::kFloat32) {
  OpCase op_case{.op = "Einsum", .attributes = {{"equation", equation}}, .inputs = {}};
  const bool is_real = IsFloatingPoint(dtype);
  for (const Shape& shape : shapes) {
    op_case.inputs.push_back(
        RandomTensor(shape, op_case.inputs.size() + 1, is_real ? -1 : 0, is_real ? 1 : 100, dtype));
  }
  return op_case;
}

struct EinsumExample {
  const char* equation;
  std::vector<Shape> shapes;
};

std::vector<EinsumExample> EinsumExamples() {
  return {
      {"ij,jk->ik", {{7, 5}, {5, 11}}},
      {"ij,jk->ki", {{7, 5}, {5, 11}}},
      {"ji,kj->ik", {{5, 7}, {11, 5}}},
      {"bqhd,bkhd->bhqk", {{2, 5, 3, 4}, {2, 7, 3, 4}}},
      {"bhqk,bkhd->bqhd", {{2, 3, 5, 7}, {2, 7, 3, 4}}},
      {"...ij,...jk->...ik", {{2, 3, 4, 5}, {3, 5, 2}}},
      {"bij,bjk->bik", {{1, 4, 5}, {3, 5, 2}}},
      {"i,j->ij", {{37}, {41}}},
      {"i,i->", {{301}, {301}}},
      {"i,i->i", {{301}, {301}}},
      {"ii->i", {{17, 17}}},
      {"ii->", {{17, 17}}},
      {"ijk->j", {{7, 5, 67}}},
      {"ij->ji", {{7, 5}}},
      {"ij,kl->", {{3, 4}, {5, 6}}},
      {"ijk,j->ki", {{3, 4, 5}, {4}}},
      {"iij,jk->ik", {{3, 3, 4}, {4, 5}}},
      {"abc,cd,de->abe", {{2, 3, 4}, {4, 5}, {5, 6}}},
      {"ab,bc,ac->b", {{3, 4}, {4, 5}, {3, 5}}},
      {"ij,jk", {{0, 5}, {5, 3}}},
      {"ij,jk", {{4, 0}, {0, 3}}},
      {"->", {{}}},
  };
}

TEST(EinsumOnGpu, AgreesWithTheDefinition) {
  for (const EinsumExample& example : EinsumExamples()) {
    EXPECT_TRUE(CheckOnEmulatedGpu(EinsumCase(example.equation, example.shapes)))
        << example.equation;
    EXPECT_TRUE(CheckOnEmulatedGpu(EinsumCase(example.equation, example.shapes, DType::kFloat64),
                                   {.of_magnitude = 1e-14}))
        << example.equation;
  }
  for (const char* equation : {"bqhd,bkhd->bhqk", "bhij,bhjk->kbhi"}) {
    const std::vector<Shape> shapes = {{2, 3, 3, 4}, {2, 3, equation[1] == 'q' ? 3 : 4, 4}};
    EXPECT_TRUE(
        CheckOnEmulatedGpu(EinsumCase(equation, shapes, DType::kFloat16), {.of_magnitude = 1e-3}));
    EXPECT_TRUE(
        CheckOnEmulatedGpu(EinsumCase(equation, shapes, DType::kBfloat16), {.of_magnitude = 8e-3}));
  }
}

// Whole numbers wrap around as on the CPU.
TEST(EinsumOnGpu, WholeNumbers) {
  for (const DType dtype : {DType::kInt8, DType::kUint8, DType::kInt16, DType::kUint16,
                            DType::kInt32, DType::kUint32, DType::kInt64, DType::kUint64}) {
    for (const EinsumExample& example : EinsumExamples()) {
      const OpCase op_case = EinsumCase(example.equation, example.shapes, dtype);
      const auto expected = RunOp(op_case);
      const auto actual = RunOnEmulatedGpu(op_case);
      ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
      EXPECT_TRUE(TensorsNear(actual->at(0), expected->at(0), {.of_magnitude = 0, .absolute = 0}))
          << example.equation << DTypeName(dtype);
    }
  }
}

// The launches that move elements and compute nothing.
std::vector<std::string> CopiesOf(const std::vector<EmulatedLaunchRecord>& launches) {
  std::vector<std::string> copies;
  for (const EmulatedLaunchRecord& launch : launches) {
    if (absl::StrContains(launch.body, "Copy") || absl::StrContains(launch.body, "Transpose")) {
      copies.push_back(launch.body);
    }
  }
  return copies;
}

// The scores of attention are one product of the operands as they lie: nothing is copied.
TEST(EinsumOnGpu, ReadsOperandsInPlace) {
  std::vector<EmulatedLaunchRecord> launches;
  RecordingBlasLt::Get().TakeCalls();
  const auto result =
      RunOnEmulatedGpu(EinsumCase("bqhd,bkhd->bhqk", {{2, 5, 3, 4}, {2, 7, 3, 4}}), {}, &launches);
  ASSERT_TRUE(result.ok()) << result.status();
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls, the device no launches
  const std::vector<RecordingBlasLt::Call> calls = RecordingBlasLt::Get().TakeCalls();
  EXPECT_FALSE(calls.empty());
  for (const RecordingBlasLt::Call& call : calls) {
    EXPECT_EQ(call.spec.a_row, 12) << call.spec.ToString();
    EXPECT_TRUE(call.spec.trans_b);
  }
  EXPECT_TRUE(CopiesOf(launches).empty()) << CopiesOf(launches).front();
  // What a copy's launch is called: this transposition is one.
  const auto moved = RunOnEmulatedGpu(EinsumCase("ij->ji", {{7, 5}}), {}, &launches);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_FALSE(CopiesOf(launches).empty());
}

}  // namespace
}  // namespace weft::testing
