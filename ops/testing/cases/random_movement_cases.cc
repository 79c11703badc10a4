#include <algorithm>
#include <limits>

#include "ops/testing/cases/random_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Ints = std::vector<int64_t>;

int64_t AxisOf(CaseRandom& random, int rank) { return random.Between(0, rank - 1); }

// The axis counted from either end.
int64_t Named(CaseRandom& random, int64_t axis, int rank) {
  return random.Coin() ? axis : axis - rank;
}

OpCase ConcatCase(CaseRandom& random) {
  const Shape shape = random.OfRank(3);
  const int64_t axis = AxisOf(random, 3);
  OpCase op_case{.op = "Concat", .attributes = {{"axis", Named(random, axis, 3)}}, .inputs = {}};
  const bool even = random.Coin();  // a fused weight's parts
  for (int64_t i = random.Between(1, 4); i > 0; --i) {
    Shape part = shape;
    if (!even) part.set_dim(static_cast<int>(axis), random.SmallSize());
    op_case.inputs.push_back(random.Values(part));
  }
  return op_case;
}

OpCase SplitCase(CaseRandom& random) {
  Shape shape = random.OfRank(3);
  const int axis = static_cast<int>(AxisOf(random, 3));
  const int64_t parts = random.Between(1, 4);
  OpCase op_case{.op = "Split",
                 .attributes = {{"axis", Named(random, axis, 3)}},
                 .inputs = {},
                 .outputs = std::vector<bool>(parts, true)};
  Ints sizes(parts, random.Size());
  const bool even = random.Coin();
  if (!even) {
    for (int64_t& size : sizes) size = random.SmallSize();
  }
  int64_t total = 0;
  for (const int64_t size : sizes) total += size;
  shape.set_dim(axis, total);
  op_case.inputs.push_back(random.Values(shape));
  if (!even || random.Coin()) op_case.inputs.push_back(Int64s(sizes));
  if (parts > 2) op_case.outputs[1] = random.Coin();
  return op_case;
}

OpCase FillCase(CaseRandom& random) {
  return {.op = "ConstantOfShape",
          .attributes = {{"value", Tensor::Of<float>({1}, std::vector<float>{0.5f})}},
          .inputs = {Int64s(DimsOf(random.OfRank(random.Between(1, 3))))}};
}

OpCase GatherCase(CaseRandom& random) {
  const Shape data = random.OfRank(random.Between(1, 3));
  const int64_t axis = AxisOf(random, data.rank());
  const double rows = static_cast<double>(data.dim(static_cast<int>(axis)));
  const Shape indices = random.OfRank(random.Between(0, 2));
  return {.op = "Gather",
          .attributes = {{"axis", Named(random, axis, data.rank())}},
          .inputs = {random.Values(data), random.Values(indices, -rows, rows, DType::kInt64)}};
}

OpCase GatherGradCase(CaseRandom& random) {
  const OpCase forward = GatherCase(random);
  const Shape& data = forward.inputs[0].shape();
  const Shape& indices = forward.inputs[1].shape();
  int64_t axis = forward.attributes.Int("axis", 0);
  if (axis < 0) axis += data.rank();
  Shape dy;
  for (int i = 0; i < axis; ++i) dy.AddDim(data.dim(i));
  for (const int64_t size : indices.dims()) dy.AddDim(size);
  for (int i = static_cast<int>(axis) + 1; i < data.rank(); ++i) dy.AddDim(data.dim(i));
  return {.domain = "ai.weft",
          .op = "GatherGrad",
          .attributes = forward.attributes,
          .inputs = {random.Values(dy), forward.inputs[1], Int64s(DimsOf(data))}};
}

OpCase GatherElementsCase(CaseRandom& random) {
  const Shape data = random.OfRank(3);
  const int axis = static_cast<int>(AxisOf(random, 3));
  Shape indices = data;
  indices.set_dim(axis, random.Size());
  const double rows = static_cast<double>(data.dim(axis));
  return {.op = "GatherElements",
          .attributes = {{"axis", int64_t{axis}}},
          .inputs = {random.Values(data), random.Values(indices, -rows, rows, DType::kInt64)}};
}

OpCase GatherElementsGradCase(CaseRandom& random) {
  const OpCase forward = GatherElementsCase(random);
  return {.domain = "ai.weft",
          .op = "GatherElementsGrad",
          .attributes = forward.attributes,
          .inputs = {random.Values(forward.inputs[1].shape()), forward.inputs[1],
                     Int64s(DimsOf(forward.inputs[0].shape()))}};
}

// A shape of the same elements: axes merged, taken apart, or both.
Ints Regrouped(CaseRandom& random, const Shape& shape) {
  Ints dims;
  for (const int64_t size : shape.dims()) {
    if (!dims.empty() && random.Between(0, 2) == 0) {
      dims.back() *= size;
      continue;
    }
    dims.push_back(size);
    for (const int64_t divisor : {2, 3}) {
      if (dims.back() % divisor != 0 || dims.back() == divisor || !random.Coin()) continue;
      dims.back() /= divisor;
      dims.insert(random.Coin() ? dims.end() : dims.end() - 1, divisor);
    }
  }
  return dims;
}

OpCase ReshapeCase(CaseRandom& random) {
  const Shape from = random.OfRank(random.Between(1, 4));
  Ints to = Regrouped(random, from);
  if (random.Coin()) to[random.Between(0, static_cast<int64_t>(to.size()) - 1)] = -1;
  return {.op = "Reshape", .inputs = {random.Values(from), Int64s(to)}};
}

OpCase FlattenCase(CaseRandom& random) {
  return {.op = "Flatten",
          .attributes = {{"axis", random.Between(0, 3)}},
          .inputs = {random.Values(random.OfRank(3))}};
}

OpCase SqueezeCase(CaseRandom& random) {
  Shape shape = random.OfRank(4);
  shape.set_dim(1, 1);
  if (random.Coin()) shape.set_dim(3, 1);
  OpCase op_case{.op = "Squeeze", .inputs = {random.Values(shape)}};
  if (random.Coin()) op_case.inputs.push_back(Int64s({random.Coin() ? 1 : -3}));
  return op_case;
}

OpCase UnsqueezeCase(CaseRandom& random) {
  return {.op = "Unsqueeze",
          .inputs = {random.Values(random.OfRank(2)),
                     Int64s(random.OneOf<Ints>({{0}, {1}, {-1}, {0, 2}, {1, 3}}))}};
}

OpCase ExpandCase(CaseRandom& random) {
  Shape small = random.OfRank(3);
  Ints to = {random.SmallSize()};
  if (random.Coin()) to.clear();
  for (int axis = 0; axis < 3; ++axis) {
    if (random.Between(0, 2) == 0) small.set_dim(axis, 1);
    const bool asks_for_one = random.Between(0, 3) == 0;  // one leaves the axis as it is
    to.push_back(small.dim(axis) == 1 ? random.Size() : asks_for_one ? 1 : small.dim(axis));
  }
  return {.op = "Expand", .inputs = {random.Values(small), Int64s(to)}};
}

OpCase TileCase(CaseRandom& random) {
  Ints repeats;
  for (int axis = 0; axis < 3; ++axis) repeats.push_back(random.Between(1, 3));
  return {.op = "Tile", .inputs = {random.Values(random.OfRank(3)), Int64s(repeats)}};
}

// Sorted positions in [0, size].
std::pair<int64_t, int64_t> Span(CaseRandom& random, int64_t size) {
  const int64_t first = random.Between(0, size - 1);
  return {first, random.Between(first + 1, size)};
}

OpCase SliceCase(CaseRandom& random) {
  const Shape shape = random.OfRank(3);
  const int axis = static_cast<int>(AxisOf(random, 3));
  const auto [first, last] = Span(random, shape.dim(axis));
  Ints starts = {random.Coin() ? first : first - shape.dim(axis)};
  Ints ends = {last == shape.dim(axis) && random.Coin() ? std::numeric_limits<int64_t>::max()
                                                        : last};
  Ints axes = {Named(random, axis, 3)};
  if (random.Coin()) {  // another one, of which all is taken
    starts.push_back(0);
    ends.push_back(shape.dim((axis + 1) % 3));
    axes.push_back((axis + 1) % 3);
  }
  OpCase op_case{.op = "Slice",
                 .inputs = {random.Values(shape), Int64s(starts), Int64s(ends), Int64s(axes)}};
  if (random.Coin()) {
    op_case.inputs.push_back(Int64s(Ints(axes.size(), 1)));
  }
  return op_case;
}

OpCase SliceGradCase(CaseRandom& random) {
  const Shape shape = random.OfRank(3);
  const int axis = static_cast<int>(AxisOf(random, 3));
  const auto [first, last] = Span(random, shape.dim(axis));
  Shape dy = shape;
  dy.set_dim(axis, last - first);
  return {.domain = "ai.weft",
          .op = "SliceGrad",
          .inputs = {random.Values(dy), Int64s(DimsOf(shape)), Int64s({first}), Int64s({last}),
                     Int64s({axis})}};
}

// A third of a fused product: its blocks go to ranks.
OpCase SliceOfBlocksCase(CaseRandom& random) {
  Shape shape = random.OfRank(3);
  const int axis = static_cast<int>(AxisOf(random, 3));
  const int64_t block = random.Size();
  const int64_t blocks = random.Between(2, 4);
  const auto [first, last] = Span(random, blocks);
  shape.set_dim(axis, block * blocks);
  return {.op = "Slice",
          .inputs = {random.Values(shape), Int64s({first * block}), Int64s({last * block}),
                     Int64s({Named(random, axis, 3)})}};
}

OpCase AnySliceCase(CaseRandom& random) {
  return random.Coin() ? SliceCase(random) : SliceOfBlocksCase(random);
}

OpCase PadCase(CaseRandom& random) {
  const Shape shape = random.OfRank(3);
  Ints pads(6, 0);
  const int axis = static_cast<int>(AxisOf(random, 3));
  const std::string mode =
      shape.dim(axis) > 2 ? random.OneOf<std::string>({"constant", "reflect", "edge"}) : "constant";
  pads[axis] = random.Between(0, 2);
  pads[axis + 3] = random.Between(mode == "constant" ? -pads[axis] : 0, 2);
  OpCase op_case{
      .op = "Pad", .attributes = {{"mode", mode}}, .inputs = {random.Values(shape), Int64s(pads)}};
  const bool named = random.Coin();
  if (named) op_case.inputs[1] = Int64s({pads[axis], pads[axis + 3]});
  if (mode == "constant" && random.Coin()) {
    op_case.inputs.push_back(random.Values(Shape{}));
  } else if (named) {
    op_case.inputs.push_back(Tensor());
  }
  if (named) op_case.inputs.push_back(Int64s({Named(random, axis, 3)}));
  return op_case;
}

OpCase OneHotCase(CaseRandom& random) {
  const int64_t depth = random.Between(2, 5);
  const double bound = static_cast<double>(depth);
  return {.op = "OneHot",
          .attributes = {{"axis", random.Between(-3, 2)}},
          .inputs = {random.Values(random.OfRank(2), -bound, bound, DType::kInt64), Int64s({depth}),
                     random.Values({2})}};
}

// Data of rank 3, places of rank 1 or 2 beside `batch_dims` common axes.
struct RowCase {
  Shape data;
  Shape rows;
  Tensor indices;
};

RowCase RandomRows(CaseRandom& random, int batch_dims) {
  RowCase c;
  c.data = random.OfRank(3);
  const int64_t depth = random.Between(1, 3 - batch_dims);
  double smallest = 100;
  for (int d = batch_dims; d < batch_dims + depth; ++d) {
    smallest = std::min(smallest, static_cast<double>(c.data.dim(d)));
  }
  Shape places;
  for (int d = 0; d < batch_dims; ++d) places.AddDim(c.data.dim(d));
  for (int64_t i = random.Between(1, 2); i > 0; --i) places.AddDim(random.SmallSize());
  c.rows = places;
  places.AddDim(depth);
  for (int d = batch_dims + static_cast<int>(depth); d < 3; ++d) c.rows.AddDim(c.data.dim(d));
  c.indices = random.Values(places, -smallest, smallest, DType::kInt64);
  return c;
}

OpCase GatherNdCase(CaseRandom& random) {
  const int batch_dims = static_cast<int>(random.Between(0, 1));
  const RowCase c = RandomRows(random, batch_dims);
  return {.op = "GatherND",
          .attributes = {{"batch_dims", int64_t{batch_dims}}},
          .inputs = {random.Values(c.data), c.indices}};
}

OpCase GatherNdGradCase(CaseRandom& random) {
  const int batch_dims = static_cast<int>(random.Between(0, 1));
  const RowCase c = RandomRows(random, batch_dims);
  return {.domain = "ai.weft",
          .op = "GatherNdGrad",
          .attributes = {{"batch_dims", int64_t{batch_dims}}},
          .inputs = {random.Values(c.rows), c.indices, Int64s(DimsOf(c.data))}};
}

std::string AnyReduction(CaseRandom& random) {
  return random.OneOf<std::string>({"none", "add", "mul", "max", "min"});
}

OpCase ScatterNdCase(CaseRandom& random) {
  const RowCase c = RandomRows(random, 0);
  return {.op = "ScatterND",
          .attributes = {{"reduction", AnyReduction(random)}},
          .inputs = {random.Values(c.data), c.indices, random.Values(c.rows)}};
}

OpCase ScatterElementsCase(CaseRandom& random) {
  const OpCase gather = GatherElementsCase(random);
  OpCase op_case{.op = "ScatterElements", .attributes = gather.attributes, .inputs = gather.inputs};
  op_case.attributes.Set("reduction", AnyReduction(random));
  op_case.inputs.push_back(random.Values(gather.inputs[1].shape()));
  return op_case;
}

OpCase TransposeCase(CaseRandom& random) {
  const int rank = static_cast<int>(random.Between(1, 4));
  OpCase op_case{.op = "Transpose", .inputs = {random.Values(random.OfRank(rank))}};
  if (random.Between(0, 3) != 0) op_case.attributes.Set("perm", random.Permutation(rank));
  return op_case;
}

OpCase IdentityCase(CaseRandom& random) {
  return {.op = "Identity", .inputs = {random.Values(random.OfRank(random.Between(0, 3)))}};
}

}  // namespace

void AddMovementCases(CaseGenerators& generators) {
  generators["Concat"] = {ConcatCase, /*only_moves=*/true};
  generators["Split"] = {SplitCase, true};
  generators["ConstantOfShape"] = {FillCase, true};
  generators["Gather"] = {GatherCase, true};
  generators["ai.weft::GatherGrad"] = {GatherGradCase};
  generators["GatherElements"] = {GatherElementsCase, true};
  generators["ai.weft::GatherElementsGrad"] = {GatherElementsGradCase};
  generators["GatherND"] = {GatherNdCase, true};
  generators["ai.weft::GatherNdGrad"] = {GatherNdGradCase};
  generators["ScatterND"] = {ScatterNdCase};
  generators["ScatterElements"] = {ScatterElementsCase};
  generators["Pad"] = {PadCase, true};
  generators["OneHot"] = {OneHotCase, true};
  generators["Reshape"] = {ReshapeCase, true};
  generators["Flatten"] = {FlattenCase, true};
  generators["Squeeze"] = {SqueezeCase, true};
  generators["Unsqueeze"] = {UnsqueezeCase, true};
  generators["Expand"] = {ExpandCase, true};
  generators["Tile"] = {TileCase, true};
  generators["Slice"] = {AnySliceCase, true};
  generators["ai.weft::SliceGrad"] = {SliceGradCase, true};
  generators["Transpose"] = {TransposeCase, true};
  generators["Identity"] = {IdentityCase, true};
}

}  // namespace weft::testing
