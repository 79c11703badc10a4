#include "ops/testing/cases/random_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

Shape Swapped(Shape shape) {
  const int rank = shape.rank();
  const int64_t last = shape.dim(rank - 1);
  shape.set_dim(rank - 1, shape.dim(rank - 2));
  shape.set_dim(rank - 2, last);
  return shape;
}

// Batch axes that broadcast, then rows and columns; vectors now and then.
OpCase MatMulCase(CaseRandom& random) {
  const int64_t m = random.Size();
  const int64_t k = random.Size();
  const int64_t n = random.Size();
  Shape a;
  Shape b;
  const int batch = static_cast<int>(random.Between(0, 2));
  for (int axis = 0; axis < batch; ++axis) {
    const int64_t size = random.SmallSize();
    a.AddDim(random.Between(0, 3) == 0 ? 1 : size);
    if (random.Coin() || b.rank() > 0) b.AddDim(random.Between(0, 3) == 0 ? 1 : size);
  }
  const bool a_is_vector = batch == 0 && random.Between(0, 5) == 0;
  const bool b_is_vector = b.rank() == 0 && random.Between(0, 5) == 0;
  if (!a_is_vector) a.AddDim(m);
  a.AddDim(k);
  b.AddDim(k);
  if (!b_is_vector) b.AddDim(n);
  return {.op = "MatMul", .inputs = {random.Values(a), random.Values(b)}};
}

OpCase TransposingCase(CaseRandom& random) {
  const int64_t k = random.Size();
  Shape a;
  Shape b;
  if (random.Coin()) a.AddDim(random.SmallSize());
  if (random.Coin() && a.rank() > 0) b.AddDim(a.dim(0));
  a.AddDim(random.Size());
  a.AddDim(k);
  b.AddDim(k);
  b.AddDim(random.Size());
  const bool trans_a = random.Coin();
  const bool trans_b = random.Coin();
  return {
      .domain = "ai.weft",
      .op = "MatMul",
      .attributes = {{"transA", int64_t{trans_a}}, {"transB", int64_t{trans_b}}},
      .inputs = {random.Values(trans_a ? Swapped(a) : a), random.Values(trans_b ? Swapped(b) : b)}};
}

OpCase ReduceBatchCase(CaseRandom& random) {
  Shape a;
  for (int64_t axes = random.Between(1, 2); axes > 0; --axes) a.AddDim(random.Size());
  Shape b = a;
  a.AddDim(random.Size());
  b.AddDim(random.Size());
  return {.domain = "ai.weft",
          .op = "MatMulReduceBatch",
          .inputs = {random.Values(a), random.Values(b)}};
}

OpCase GemmCase(CaseRandom& random) {
  const int64_t m = random.Size();
  const int64_t k = random.Size();
  const int64_t n = random.Size();
  const bool trans_a = random.Coin();
  const bool trans_b = random.Coin();
  OpCase op_case{.op = "Gemm",
                 .attributes = {{"transA", int64_t{trans_a}},
                                {"transB", int64_t{trans_b}},
                                {"alpha", 0.5f},
                                {"beta", 2.0f}},
                 .inputs = {random.Values(trans_a ? Shape{k, m} : Shape{m, k}),
                            random.Values(trans_b ? Shape{n, k} : Shape{k, n})}};
  if (random.Coin()) {
    op_case.inputs.push_back(random.Values(
        random.OneOf<Shape>({Shape{n}, Shape{m, n}, Shape{m, 1}, Shape{1, n}, Shape{}})));
  }
  return op_case;
}

OpCase LstmCase(CaseRandom& random) {
  const bool both = random.Coin();
  const bool batch_first = random.Coin();
  const int64_t d = both ? 2 : 1;
  const int64_t batch = random.Size();
  const int64_t time = random.Between(1, 3);
  const int64_t input = random.Between(1, 3);
  const int64_t hidden = random.Between(1, 3);
  const Shape x = batch_first ? Shape{batch, time, input} : Shape{time, batch, input};
  const Shape state = batch_first ? Shape{batch, d, hidden} : Shape{d, batch, hidden};
  OpCase op_case{.op = "LSTM",
                 .attributes = {{"direction", std::string(both ? "bidirectional" : "forward")},
                                {"layout", int64_t{batch_first}},
                                {"hidden_size", hidden}},
                 .inputs = {random.Values(x), random.Values({d, 4 * hidden, input}),
                            random.Values({d, 4 * hidden, hidden})},
                 .outputs = {true, random.Coin(), random.Coin()}};
  if (random.Coin()) {
    const double end = static_cast<double>(time) + 1;
    op_case.inputs.push_back(random.Values({d, 8 * hidden}));
    op_case.inputs.push_back(random.Values({batch}, 0, end, DType::kInt32));
    op_case.inputs.push_back(random.Values(state));
    op_case.inputs.push_back(random.Values(state));
  }
  return op_case;
}

}  // namespace

void AddProductCases(CaseGenerators& generators) {
  generators["MatMul"] = {MatMulCase};
  generators["ai.weft::MatMul"] = {TransposingCase};
  generators["ai.weft::MatMulReduceBatch"] = {ReduceBatchCase};
  generators["Gemm"] = {GemmCase};
  generators["LSTM"] = {LstmCase};
}

}  // namespace weft::testing
