// Ops that move elements without looking at data.
#include <numeric>

#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

Operands ConcatCase(CaseRandom& random) {
  const Shape shape = SmallShape(random, 3);
  const int axis = static_cast<int>(random.Between(0, 2));
  Operands operands{.attributes = {{"axis", static_cast<int64_t>(axis)}}};
  const int64_t count = random.Between(1, 3);
  for (int64_t i = 0; i < count; ++i) {
    Shape part = shape;
    part.set_dim(axis, random.Between(1, 3));
    operands.inputs.push_back(random.Values(part));
  }
  return operands;
}

Operands SplitCase(CaseRandom& random) {
  const int64_t first = random.Between(1, 3);
  const int64_t second = random.Between(1, 3);
  return {.attributes = {{"axis", int64_t{1}}},
          .inputs = {random.Values({2, first + second + 1, 2}), Int64s({first, second, 1})},
          .outputs = {true, random.Coin(), true}};
}

Operands ExpandCase(CaseRandom& random) {
  const Shape big = SmallShape(random, 3);
  return {.inputs = {random.Values(BroadcastableShape(random, big)), Int64s(DimsOf(big))}};
}

Operands ReshapeCase(CaseRandom& random) {
  const Shape shape = SmallShape(random, 3);
  return {.inputs = {random.Values(shape), Int64s({0, -1})}};
}

Operands TransposeCase(CaseRandom& random) {
  return {.attributes = {{"perm", random.Permutation(3)}},
          .inputs = {random.Values(SmallShape(random, 3))}};
}

Operands TileCase(CaseRandom& random) {
  return {.inputs = {random.Values(SmallShape(random, 2)),
                     Int64s({random.Between(1, 3), random.Between(1, 3)})}};
}

Operands SliceCase(CaseRandom& random) {
  const int64_t step = random.OneOf<int64_t>({1, 2, -1, -2});
  const int64_t first = step > 0 ? random.Between(0, 2) : -1;
  const int64_t last = step > 0 ? 6 : -6;
  return {.inputs = {random.Values({3, 6}), Int64s({first}), Int64s({last}),
                     Int64s({random.Coin() ? int64_t{1} : int64_t{-1}}), Int64s({step})}};
}

Operands SliceGradCase(CaseRandom& random) {
  return {.inputs = {random.Values({3, 2}), Int64s({3, 5}), Int64s({1}), Int64s({5}), Int64s({1}),
                     Int64s({2})}};
}

Operands TriluCase(CaseRandom& random) {
  return {.attributes = {{"upper", random.Between(0, 1)}},
          .inputs = {random.Values({2, 3, 4}), Tensor::Scalar<int64_t>(random.Between(-2, 2))}};
}

Operands DepthToSpaceCase(CaseRandom& random) {
  return {.attributes = {{"blocksize", int64_t{2}},
                         {"mode", std::string(random.Coin() ? "DCR" : "CRD")}},
          .inputs = {random.Values({2, 8, 1, 2})}};
}

Operands SpaceToDepthCase(CaseRandom& random) {
  return {.attributes = {{"blocksize", int64_t{2}}}, .inputs = {random.Values({1, 2, 4, 2})}};
}

Operands ReverseSequenceCase(CaseRandom& random) {
  const int64_t batch = random.Between(0, 1);
  return {.attributes = {{"batch_axis", batch}, {"time_axis", 1 - batch}},
          .inputs = {random.Values({4, 4, 2}), Indices(random, {4}, 1, 4)}};
}

Operands ConstantPadCase(CaseRandom& random) {
  Ints pads;
  for (int i = 0; i < 4; ++i) pads.push_back(random.Between(-1, 2));
  return {.inputs = {random.Values({3, 4}), Int64s(pads),
                     random.Coin() ? random.Values({}) : Tensor()}};
}

Operands ChosenAxesPadCase(CaseRandom& random) {
  return {.inputs = {random.Values({2, 3, 2}),
                     Int64s({random.Between(0, 2), random.Between(-1, 2)}), random.Values({}),
                     Int64s({random.Coin() ? int64_t{1} : int64_t{-2}})}};
}

// Every mode, on chosen axes or all; the pads may be larger than the axis, and negative.
Operands RepeatingPadCase(CaseRandom& random, const std::string& mode) {
  if (random.Coin()) {
    return {
        .attributes = {{"mode", mode}},
        .inputs = {random.Values({2, 4, 3}), Int64s({random.Between(0, 5), random.Between(0, 2)}),
                   Tensor(), Int64s({1})}};
  }
  return {.attributes = {{"mode", mode}},
          .inputs = {random.Values({3, 4}), Int64s({random.Between(0, 2), random.Between(-1, 5), 0,
                                                    random.Between(-1, 2)})}};
}

Operands CenterCropPadCase(CaseRandom& random) {
  if (random.Coin()) {
    return {
        .inputs = {random.Values({4, 5}), Int64s({random.Between(1, 7), random.Between(1, 8)})}};
  }
  return {
      .attributes = {{"axes", Ints{-1, 0}}},
      .inputs = {random.Values({3, 2, 5}), Int64s({random.Between(1, 8), random.Between(1, 6)})}};
}

}  // namespace

void AddMovementGradients(GradientGenerators& g) {
  AddCase(g, "Concat", ConcatCase);
  AddCase(g, "Split", SplitCase);
  AddCase(g, "Expand", ExpandCase);
  AddCase(g, "Reshape", ReshapeCase);
  AddCase(g, "Transpose", TransposeCase);
  AddCase(g, "Tile", TileCase);
  AddCase(g, "Slice", SliceCase);
  AddCase(g, "ai.weft::SliceGrad", SliceGradCase);
  AddCase(g, "Trilu", TriluCase);
  AddCase(g, "DepthToSpace", DepthToSpaceCase);
  AddCase(g, "SpaceToDepth", SpaceToDepthCase);
  AddCase(g, "ReverseSequence", ReverseSequenceCase);
  AddCase(g, "Pad", ConstantPadCase);
  AddCase(g, "Pad", ChosenAxesPadCase);
  for (const char* mode : {"reflect", "edge", "wrap"}) {
    AddCase(g, "Pad", [mode](CaseRandom& random) { return RepeatingPadCase(random, mode); });
  }
  AddCase(g, "CenterCropPad", CenterCropPadCase);
  AddCase(g, "Flatten", [](CaseRandom& random) {
    return Operands{.attributes = {{"axis", random.Between(0, 3)}},
                    .inputs = {random.Values(SmallShape(random, 3))}};
  });
  AddCase(g, "Squeeze", [](CaseRandom& random) {
    return Operands{.inputs = {random.Values({2, 1, 3, 1}), Int64s({1, -1})}};
  });
  AddCase(g, "Unsqueeze", [](CaseRandom& random) {
    return Operands{.inputs = {random.Values({2, 3}), Int64s({0, -1})}};
  });
}

}  // namespace weft::testing
