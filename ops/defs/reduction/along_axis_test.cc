// What goes along an axis: ArgMax, ArgMin, Hardmax, CumSum, CumProd, TopK, OneHot; and Trilu,
// EyeLike, Det, Einsum.
#include <limits>

#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

// ---- ArgMax, ArgMin, Hardmax.

TEST(Arg, AgreesWithTheReference) {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (const int64_t axis : {0, 1, -1}) {
      for (const int64_t last : {0, 1}) {
        for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64, DType::kUint8}) {
          EXPECT_TRUE(CheckKernelAgainstReference(
              {.op = op,
               .attributes = {{"axis", axis}, {"keepdims", last}, {"select_last_index", last}},
               .inputs = {RandomTensor({3, 11, 5}, 1, 0, 5, dtype)}}));
        }
      }
    }
  }
}

TEST(Arg, TheFirstNanBeatsAll) {
  EXPECT_TRUE(
      RunOp({.op = "ArgMax", .inputs = {Floats({9, kNan, 10, kNan})}})->at(0).data<int64_t>()[0] ==
      1);
}

TEST(Arg, AnEmptyAxisIsRefused) {
  EXPECT_TRUE(ExpectError({.op = "ArgMax", .inputs = {RandomTensor({0, 3}, 1)}},
                          absl::StatusCode::kInvalidArgument, {"axis 0 is empty"}));
}

TEST(Arg, Shardings) {
  EXPECT_TRUE(CheckSharding({.op = "ArgMax",
                             .attributes = {{"axis", int64_t{1}}},
                             .inputs = {RandomTensor({6, 4, 3}, 1)}},
                            {.min_splits = 4}));
}

TEST(Hardmax, AgreesWithTheReference) {
  for (const int64_t axis : {0, 1, -1}) {
    EXPECT_TRUE(CheckKernelAgainstReference({.op = "Hardmax",
                                             .attributes = {{"axis", axis}},
                                             .inputs = {RandomTensor({3, 11, 5}, 1)}}));
  }
  EXPECT_TRUE(CheckKernelAgainstReference({.op = "Hardmax", .inputs = {RandomTensor({3, 0}, 1)}}));
}

// ---- CumSum, CumProd.

OpCase CumulativeCase(const char* op, Shape shape, int64_t axis, bool exclusive, bool reverse,
                      DType dtype = DType::kFloat32) {
  return {.op = op,
          .attributes = {{"exclusive", int64_t{exclusive}}, {"reverse", int64_t{reverse}}},
          .inputs = {RandomTensor(std::move(shape), 1, 0.5, 1.5, dtype),
                     Tensor::Scalar<int64_t>(axis)}};
}

TEST(Cumulative, AgreesWithTheReference) {
  for (const char* op : {"CumSum", "CumProd"}) {
    for (const int64_t axis : {0, 1, -1}) {
      for (const bool exclusive : {false, true}) {
        for (const bool reverse : {false, true}) {
          EXPECT_TRUE(CheckKernelAgainstReference(
              CumulativeCase(op, {3, 7, 67}, axis, exclusive, reverse)));
        }
      }
    }
    EXPECT_TRUE(CheckKernelAgainstReference(CumulativeCase(op, {0, 3}, 0, false, false)));
    EXPECT_TRUE(CheckKernelAgainstReference(CumulativeCase(op, {3, 0}, 0, false, false)));
    for (const DType dtype : {DType::kFloat64, DType::kInt32, DType::kUint64}) {
      EXPECT_TRUE(CheckKernelAgainstReference(CumulativeCase(op, {9}, 0, false, true, dtype)));
    }
  }
}

TEST(CumSum, Gradients) {
  EXPECT_TRUE(CheckGradient(CumulativeCase("CumSum", {3, 4}, 1, false, false), {.inputs = {0}}));
  EXPECT_TRUE(CheckGradient(CumulativeCase("CumSum", {3, 4}, 0, true, true), {.inputs = {0}}));
}

TEST(CumSum, AnAxisOutsideIsRefused) {
  EXPECT_TRUE(ExpectError(CumulativeCase("CumSum", {3, 4}, 2, false, false),
                          absl::StatusCode::kInvalidArgument, {"2", "[-2, 2)"}));
}

// ---- TopK.

OpCase TopKCase(Tensor x, int64_t k, int64_t axis, bool largest) {
  return {.op = "TopK",
          .attributes = {{"axis", axis}, {"largest", int64_t{largest}}},
          .inputs = {std::move(x), Int64s({k})},
          .outputs = {true, true}};
}

TEST(TopK, AgreesWithTheReference) {
  for (const bool largest : {true, false}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kUint8}) {
      for (const int64_t axis : {0, 1, -1}) {
        const Tensor x = RandomTensor({3, 17, 5}, 1, 0, 9, dtype);
        EXPECT_TRUE(CheckKernelAgainstReference(TopKCase(x, 3, axis, largest)));
        EXPECT_TRUE(CheckKernelAgainstReference(TopKCase(x, 0, axis, largest)));
      }
      EXPECT_TRUE(CheckKernelAgainstReference(
          TopKCase(RandomTensor({2, 1031}, 1, 0, 99, dtype), 1031, 1, largest)));
    }
  }
}

TEST(TopK, MoreThanThereAreIsRefused) {
  EXPECT_TRUE(ExpectError(TopKCase(Floats({1, 2}), 3, 0, true), absl::StatusCode::kInvalidArgument,
                          {"K is 3", "axis 0"}));
}

TEST(TopK, NanCountsAsTheLargest) {
  const auto y = RunOp(TopKCase(Floats({1, kNan, 3, 2}), 2, 0, true));
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_TRUE(BitwiseEqual(y->at(1), Int64s({1, 2})));
}

// ---- OneHot.

TEST(OneHot, AgreesWithTheReference) {
  for (const int64_t axis : {-1, 0, 1, 2, -3}) {
    EXPECT_TRUE(
        CheckKernelAgainstReference({.op = "OneHot",
                                     .attributes = {{"axis", axis}},
                                     .inputs = {RandomTensor({4, 3}, 1, -9, 9, DType::kInt64),
                                                Tensor::Scalar<int64_t>(7), Floats({-2, 5})}}));
  }
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "OneHot",
       .inputs = {Floats({0, 3, -1}), Floats({4}), Cast(Floats({1, 3}), DType::kInt8)}}));
}

// ---- Trilu, EyeLike, Det.

TEST(Trilu, AgreesWithTheReference) {
  for (const int64_t upper : {0, 1}) {
    for (const int64_t k : {-9, -2, 0, 1, 9}) {
      for (const Shape& shape : {Shape{4, 5}, Shape{2, 3, 5, 3}, Shape{3, 0, 5}, Shape{1, 1}}) {
        EXPECT_TRUE(CheckKernelAgainstReference(
            {.op = "Trilu",
             .attributes = {{"upper", upper}},
             .inputs = {RandomTensor(shape, 1), Tensor::Scalar<int64_t>(k)}}));
      }
    }
  }
  EXPECT_TRUE(CheckKernelAgainstReference(
      {.op = "Trilu", .inputs = {RandomTensor({5, 4}, 1, 0, 1, DType::kBool)}}));
}

TEST(Trilu, Gradients) {
  EXPECT_TRUE(CheckGradient(
      {.op = "Trilu", .inputs = {RandomTensor({2, 4, 3}, 1), Tensor::Scalar<int64_t>(-1)}}));
}

TEST(EyeLike, AgreesWithTheReference) {
  for (const int64_t k : {-2, 0, 3, 99, -99}) {
    EXPECT_TRUE(CheckKernelAgainstReference(
        {.op = "EyeLike",
         .attributes = {{"k", k}, {"dtype", static_cast<int64_t>(DType::kInt32)}},
         .inputs = {RandomTensor({4, 5}, 1, 0, 9, DType::kUint8)}}));
  }
}

TEST(Det, AgreesWithTheReference) {
  for (const Shape& shape : {Shape{1, 1}, Shape{4, 4}, Shape{2, 3, 5, 5}, Shape{0, 2, 2}}) {
    EXPECT_TRUE(CheckKernelAgainstReference({.op = "Det", .inputs = {RandomTensor(shape, 1)}},
                                            {.of_magnitude = 1e-5}));
  }
}

TEST(Det, MatricesAreSquare) {
  EXPECT_TRUE(ExpectError({.op = "Det", .inputs = {RandomTensor({2, 3}, 1)}},
                          absl::StatusCode::kInvalidArgument, {"[2,3]", "square"}));
}

// ---- Einsum.

OpCase EinsumCase(const std::string& equation, const std::vector<Shape>& shapes,
                  DType dtype = DType::kFloat32) {
  OpCase op_case{.op = "Einsum", .attributes = {{"equation", equation}}, .inputs = {}};
  for (const Shape& shape : shapes) {
    op_case.inputs.push_back(RandomTensor(shape, op_case.inputs.size() + 1, -5, 5, dtype));
  }
  return op_case;
}

TEST(Einsum, AgreesWithTheReference) {
  const std::vector<std::pair<std::string, std::vector<Shape>>> cases = {
      {"ij->ji", {{3, 4}}},
      {"ij", {{3, 4}}},
      {"ba", {{3, 4}}},
      {"i,i", {{5}, {5}}},
      {"i,j->ij", {{5}, {3}}},
      {"bij, bjk -> bik", {{2, 3, 4}, {2, 4, 5}}},
      {"...ij,...jk->...ik", {{2, 3, 4}, {7, 1, 4, 5}}},
      {"...ii->...i", {{2, 3, 3}}},
      {"ii", {{4, 4}}},
      {"ij->", {{4, 3}}},
      {"ijk,jil->kl", {{3, 4, 5}, {4, 3, 2}}},
      {"ij,jk,kl->il", {{3, 4}, {4, 5}, {5, 2}}},
      {"a,b,ab->", {{3}, {4}, {3, 4}}},
      {"ij,jk->ik", {{3, 0}, {0, 5}}},
      {"ij,jk->ik", {{0, 3}, {3, 5}}},
      {"ij,ij->i", {{3, 1}, {3, 4}}},
      {"bhqd,bhkd->bhqk", {{2, 3, 5, 4}, {2, 3, 7, 4}}}};
  for (const auto& [equation, shapes] : cases) {
    EXPECT_TRUE(CheckKernelAgainstReference(EinsumCase(equation, shapes))) << equation;
    EXPECT_TRUE(CheckKernelAgainstReference(EinsumCase(equation, shapes, DType::kFloat64)));
    EXPECT_TRUE(CheckKernelAgainstReference(EinsumCase(equation, shapes, DType::kInt32)));
  }
}

TEST(Einsum, Gradients) {
  EXPECT_TRUE(CheckGradient(EinsumCase("bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}})));
  EXPECT_TRUE(CheckGradient(EinsumCase("ijk,jil->kl", {{3, 4, 5}, {4, 3, 2}})));
  EXPECT_TRUE(CheckGradient(EinsumCase("ij,jk,kl->il", {{3, 4}, {4, 5}, {5, 2}})));
  EXPECT_TRUE(CheckGradient(EinsumCase("...ij,...jk->...ik", {{2, 3, 4}, {4, 5}})));
}

TEST(Einsum, AProductThatFitsNoMemoryIsRefused) {
  // a b c d is wanted by nobody but arises on the way.
  OpCase op_case = EinsumCase("a,b,c,d,ac,bd->", {{4096}, {4096}, {4096}, {4096}, {1, 1}, {1, 1}});
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"from left to right", "side by side"}));
}

TEST(Einsum, WrongEquationsAreNamed) {
  const auto refuses = [](const std::string& equation, const std::string& text) {
    return ExpectError(EinsumCase(equation, {{3, 4}, {4, 5}}), absl::StatusCode::kInvalidArgument,
                       {text});
  };
  EXPECT_TRUE(refuses("ij,jk,kl->il", "has 3 operands, the node 2"));
  EXPECT_TRUE(refuses("ijk,jk->i", "names 3 axes, but operand 0 has 2"));
  EXPECT_TRUE(refuses("ij,jk->iz", "'z'"));
  EXPECT_TRUE(refuses("ij,jk->ii", "twice"));
  EXPECT_TRUE(refuses("i?,jk->i", "'?'"));
  EXPECT_TRUE(refuses("ij,ik->jk", "axis 0 of input 1 is 4"));
  EXPECT_TRUE(refuses("ij->ij->ij,a", "more than one"));
}

}  // namespace
}  // namespace weft::testing
