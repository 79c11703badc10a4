// If, Loop, Scan and SequenceMap: bodies that carry values, read and write along axes both ways,
// and take values from one and two scopes outside.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/node_bodies.h"
#include "ops/testing/cases/gradient_cases.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

using Values = std::vector<ValueId>;
using Names = std::vector<std::string>;

ValueType TypeOf(DType dtype, std::vector<Dim> dims) {
  return {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))};
}

// A body under construction; its inputs of floats are all [rows,size] or [size] or [size,size].
class Body {
 public:
  explicit Body(DType dtype) : graph_(std::make_shared<Graph>()), g_(*graph_), dtype_(dtype) {}

  ValueId In(const std::string& name, const std::vector<int64_t>& dims) {
    std::vector<Dim> sizes;  // -1: any
    for (const int64_t dim : dims) sizes.push_back(dim < 0 ? Dim() : Dim(dim));
    return graph_->AddInput(name, TypeOf(dtype_, std::move(sizes)));
  }
  ValueId In(const std::string& name, DType dtype) {
    return graph_->AddInput(name, TypeOf(dtype, {}));
  }
  void Out(ValueId value) { graph_->AddOutput(value); }
  GraphBuilder& g() { return g_; }
  DType dtype() const { return dtype_; }
  std::shared_ptr<Graph> graph() const { return graph_; }

 private:
  std::shared_ptr<Graph> graph_;
  GraphBuilder g_;
  DType dtype_;
};

ValueId CountTo(GraphBuilder& b, int64_t count) {
  return b.Constant(Tensor::Scalar<int64_t>(count));
}

// tanh(h w + part)
ValueId Cell(GraphBuilder& g, ValueId h, ValueId part, ValueId w) {
  return g.Op("Tanh", {g.Op("Add", {g.Op("MatMul", {h, w}), part})});
}

// `shape` with an axis of `size` more, in the place that `axis` names among the result's.
Shape WithAxis(const std::vector<int64_t>& shape, int64_t axis, int64_t size) {
  std::vector<int64_t> dims = shape;
  if (axis < 0) axis += static_cast<int64_t>(dims.size()) + 1;
  dims.insert(dims.begin() + axis, size);
  Shape result;
  for (const int64_t dim : dims) result.AddDim(dim);
  return result;
}

// Reads and makes parts of rank 2 and 1 along any axis in any direction.
struct Directions {
  int64_t in = 0, weights = 0;  // axes
  int64_t out = 0, scaled = 0;
  std::vector<int64_t> read, made;  // directions
};

Directions DrawDirections(CaseRandom& random) {
  Directions d;
  d.in = random.Between(-3, 2);
  d.weights = random.Between(-2, 1);
  d.out = random.Between(-3, 2);
  d.scaled = random.Between(-2, 1);
  for (std::vector<int64_t>* list : {&d.read, &d.made}) {
    *list = {random.Between(0, 1), random.Between(0, 1)};
  }
  return d;
}

// Carries h [N,S], moved by a captured w, and p [S], a product of what is read; makes h * h and
// sin(part) * b with a captured b. `uses` says which of the results anything depends on.
GradientCase StatesAndParts(CaseRandom& random, int64_t rounds, std::vector<bool> uses) {
  const int64_t n = random.Between(1, 3);
  const int64_t s = random.Between(1, 3);
  const Directions d = DrawDirections(random);
  GradientCase result;
  result.name = "Scan with two states and two inputs";
  result.inputs = {random.Values({n, s}),
                   random.Values({s}, 0.5, 1.5),
                   random.Values(WithAxis({n, s}, d.in, rounds)),
                   random.Values(WithAxis({s}, d.weights, rounds), 0.5, 1.5),
                   random.Values({s, s}),
                   random.Values({s})};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    Body body(b.type(x[0]).dtype);
    const ValueId h = body.In("h", {n, s});
    const ValueId p = body.In("p", {s});
    const ValueId part = body.In("part", {n, s});
    const ValueId weight = body.In("weight", {s});
    const ValueId w = body.In("w", {s, s});
    const ValueId bias = body.In("bias", {s});
    GraphBuilder& g = body.g();
    const ValueId next = Cell(g, h, g.Op("Mul", {part, p}), w);
    body.Out(next);
    body.Out(g.Op("Mul", {p, weight}));
    body.Out(g.Op("Mul", {next, next}));
    body.Out(g.Op("Mul", {g.Op("Sin", {weight}), bias}));
    Values made = b.Ops("", "Scan", x,
                        {{"body", body.graph()},
                         {"num_scan_inputs", int64_t{2}},
                         {"scan_input_axes", std::vector<int64_t>{d.in, d.weights}},
                         {"scan_input_directions", d.read},
                         {"scan_output_axes", std::vector<int64_t>{d.out, d.scaled}},
                         {"scan_output_directions", d.made},
                         {CapturesAttribute("body"), Names{"x4", "x5"}}},
                        uses);
    std::erase(made, kNoValue);
    return made;
  };
  return result;
}

GradientCase ScanOfAll(CaseRandom& random) {
  return StatesAndParts(random, random.Between(1, 4), {true, true, true, true});
}

GradientCase ScanOfSome(CaseRandom& random) {
  std::vector<bool> uses = {random.Coin(), random.Coin(), random.Coin(), random.Coin()};
  uses[random.Between(0, 3)] = true;
  return StatesAndParts(random, random.Between(1, 4), uses);
}

// No state: each part by itself, and a captured value that every round takes.
GradientCase ScanWithoutState(CaseRandom& random) {
  const int64_t n = random.Between(1, 3);
  const int64_t rounds = random.Between(1, 4);
  const int64_t axis = random.Between(-2, 1);
  const int64_t reversed = random.Between(0, 1);
  GradientCase result;
  result.name = "Scan without state";
  result.inputs = {random.Values(WithAxis({n}, axis, rounds)), random.Values({n})};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    Body body(b.type(x[0]).dtype);
    const ValueId part = body.In("part", {n});
    const ValueId scale = body.In("scale", {n});
    body.Out(body.g().Op("Exp", {body.g().Op("Mul", {part, scale})}));
    return b.Ops("", "Scan", x,
                 {{"body", body.graph()},
                  {"num_scan_inputs", int64_t{1}},
                  {"scan_input_axes", std::vector<int64_t>{axis}},
                  {"scan_input_directions", std::vector<int64_t>{reversed}},
                  {CapturesAttribute("body"), Names{"x1"}}},
                 {true});
  };
  return result;
}

// An If that squares `part` where its first element is positive, else multiplies it with `bias`,
// which only that branch takes.
ValueId SquareOrScale(GraphBuilder& g, ValueId part, ValueId bias,
                      const std::vector<int64_t>& dims) {
  const DType dtype = g.type(part).dtype;
  Body then_branch(dtype);
  const ValueId value = then_branch.In("value", dims);
  then_branch.Out(then_branch.g().Op("Mul", {value, value}));
  Body else_branch(dtype);
  const ValueId left = else_branch.In("left", dims);
  const ValueId right = else_branch.In("right", dims);
  else_branch.Out(else_branch.g().Op("Mul", {left, right}));
  const ValueId first = g.Op("Gather", {part, CountTo(g, 0)});
  const ValueId positive = g.Op("Greater", {first, g.Scalar(dtype, 0)});
  return g.Ops("", "If", {positive, part, bias, part},
               {{"then_branch", then_branch.graph()},
                {"else_branch", else_branch.graph()},
                {CapturesAttribute("then_branch"), Names{"part"}},
                {CapturesAttribute("else_branch"), Names{"bias", "part"}}},
               {true})[0];
}

// Each round of a Scan takes the branch that its part says; the branch takes from two scopes out.
GradientCase IfInScan(CaseRandom& random) {
  const int64_t n = random.Between(1, 3);
  const int64_t rounds = random.Between(2, 4);
  GradientCase result;
  result.name = "If in Scan";
  result.inputs = {random.Values({n}), BetweenKinks(random, Shape({rounds, n})),
                   random.Values({n})};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    Body body(b.type(x[0]).dtype);
    const ValueId h = body.In("h", {n});
    const ValueId part = body.In("part", {n});
    const ValueId bias = body.In("bias", {n});
    GraphBuilder& g = body.g();
    const ValueId chosen = SquareOrScale(g, part, bias, {n});
    body.Out(g.Op("Tanh", {g.Op("Add", {h, chosen})}));
    body.Out(g.Op("Mul", {chosen, h}));
    return b.Ops("", "Scan", x,
                 {{"body", body.graph()},
                  {"num_scan_inputs", int64_t{1}},
                  {CapturesAttribute("body"), Names{"x2"}}},
                 {true, true});
  };
  return result;
}

// ---- Loop

// A loop whose body takes row `round` of x0 [rounds,n], carries h [n] from x1 and takes the matrix
// x2; it ends after M rounds, by its condition, or by whichever comes first.
enum class End { kCount, kCondition, kEither };

GradientCase LoopThatEnds(CaseRandom& random, End end) {
  const int64_t n = random.Between(1, 3);
  const int64_t rounds = random.Between(1, 4);
  const int64_t max_rounds = end == End::kEither ? random.Between(1, rounds) : rounds;
  GradientCase result;
  result.name = "Loop";
  result.inputs = {random.Values({rounds, n}), random.Values({1, n}), random.Values({n, n})};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    Body body(b.type(x[0]).dtype);
    const ValueId round = body.In("round", DType::kInt64);
    const ValueId go = body.In("go", DType::kBool);
    const ValueId h = body.In("h", {1, n});
    const ValueId parts = body.In("parts", {rounds, n});
    const ValueId w = body.In("w", {n, n});
    GraphBuilder& g = body.g();
    const ValueId next = Cell(g, h, g.Op("Gather", {parts, round}), w);
    body.Out(end == End::kCount ? g.Op("Identity", {go})
                                : g.Op("Less", {round, CountTo(g, rounds - 1)}));
    body.Out(next);
    body.Out(g.Op("Exp", {next}));
    const ValueId count = end == End::kCondition ? kNoValue : CountTo(b, max_rounds);
    const ValueId start = end == End::kCount ? kNoValue : b.Constant(Tensor::Scalar<bool>(true));
    return b.Ops("", "Loop", {count, start, x[1], x[0], x[2]},
                 {{"body", body.graph()}, {CapturesAttribute("body"), Names{"x0", "x2"}}},
                 {true, true});
  };
  return result;
}

// No round: what is carried comes out as it went in, and what is captured gets zeros.
GradientCase LoopOfNoRounds(CaseRandom& random) {
  const int64_t n = random.Between(1, 3);
  GradientCase result;
  result.name = "Loop of no rounds";
  result.inputs = {random.Values({n}), random.Values({n})};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    Body body(b.type(x[0]).dtype);
    body.In("round", DType::kInt64);
    const ValueId go = body.In("go", DType::kBool);
    const ValueId h = body.In("h", {n});
    const ValueId w = body.In("w", {n});
    body.Out(body.g().Op("Identity", {go}));
    body.Out(body.g().Op("Mul", {h, w}));
    const Values made =
        b.Ops("", "Loop", {CountTo(b, 0), kNoValue, x[0], x[1]},
              {{"body", body.graph()}, {CapturesAttribute("body"), Names{"x1"}}}, {true});
    return {b.Op("Sin", made)};
  };
  return result;
}

// A Scan in a Loop: the Loop carries what the Scan ends with, and both take w from outside.
GradientCase ScanInLoop(CaseRandom& random) {
  const int64_t n = random.Between(1, 2);
  const int64_t parts = random.Between(1, 3);
  const int64_t rounds = random.Between(1, 3);
  GradientCase result;
  result.name = "Scan in Loop";
  result.inputs = {random.Values({1, n}), random.Values({parts, 1, n}), random.Values({n, n})};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    const DType dtype = b.type(x[0]).dtype;
    Body inner(dtype);
    const ValueId state = inner.In("state", {1, n});
    const ValueId part = inner.In("part", {1, n});
    const ValueId inner_w = inner.In("inner_w", {n, n});
    inner.Out(Cell(inner.g(), state, part, inner_w));
    Body body(dtype);
    body.In("round", DType::kInt64);
    const ValueId go = body.In("go", DType::kBool);
    const ValueId h = body.In("h", {1, n});
    const ValueId all = body.In("all", {parts, 1, n});
    const ValueId w = body.In("w", {n, n});
    const Values ends = body.g().Ops("", "Scan", {h, all, w},
                                     {{"body", inner.graph()},
                                      {"num_scan_inputs", int64_t{1}},
                                      {CapturesAttribute("body"), Names{"w"}}},
                                     {true});
    body.Out(body.g().Op("Identity", {go}));
    body.Out(ends[0]);
    body.Out(body.g().Op("MatMul", {ends[0], w}));
    return b.Ops("", "Loop", {CountTo(b, rounds), kNoValue, x[0], x[1], x[2]},
                 {{"body", body.graph()}, {CapturesAttribute("body"), Names{"x1", "x2"}}},
                 {true, true});
  };
  return result;
}

// ---- If

// Two results; each branch uses one of the outer values that the other does not, and both use x0.
GradientCase Branches(CaseRandom& random) {
  const int64_t n = random.Between(1, 3);
  const int64_t m = random.Between(1, 3);
  GradientCase result;
  result.name = "If";
  result.inputs = {random.Values({n, m}), random.Values({m, 2}), random.Values({m}),
                   Tensor::Scalar<bool>(random.Coin())};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    const DType dtype = b.type(x[0]).dtype;
    Body then_branch(dtype);
    const ValueId left = then_branch.In("left", {n, m});
    const ValueId right = then_branch.In("right", {m, 2});
    then_branch.Out(then_branch.g().Op("MatMul", {left, right}));
    then_branch.Out(then_branch.g().Op("Tanh", {left}));
    Body else_branch(dtype);
    const ValueId value = else_branch.In("value", {n, m});
    const ValueId scale = else_branch.In("scale", {m});
    const ValueId product = else_branch.g().Op("Mul", {value, scale});
    else_branch.Out(else_branch.g().Op("Exp", {product}));
    else_branch.Out(else_branch.g().Op("Mul", {product, value}));
    return b.Ops("", "If", {x[3], x[0], x[2], x[0], x[1]},
                 {{"then_branch", then_branch.graph()},
                  {"else_branch", else_branch.graph()},
                  {CapturesAttribute("then_branch"), Names{"x0", "x1"}},
                  {CapturesAttribute("else_branch"), Names{"x0", "x2"}}},
                 {true, true});
  };
  return result;
}

// ---- SequenceMap

// Elements of different heights, a vector that is no sequence, and a matrix from outside: makes
// tanh(element w) * scale and sin(element).
GradientCase MapWithCaptures(CaseRandom& random) {
  const int64_t n = random.Between(1, 3);
  const bool first = random.Coin();
  const std::vector<bool> uses = {first, !first || random.Coin()};
  GradientCase result;
  result.name = "SequenceMap";
  result.inputs = {random.Values({2, n}), random.Values({1, n}), random.Values({3, n}),
                   random.Values({n}), random.Values({n, n})};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    Body body(b.type(x[0]).dtype);
    const ValueId element = body.In("element", {-1, n});
    const ValueId scale = body.In("scale", {n});
    const ValueId w = body.In("w", {n, n});
    GraphBuilder& g = body.g();
    body.Out(g.Op("Mul", {g.Op("Tanh", {g.Op("MatMul", {element, w})}), scale}));
    body.Out(g.Op("Sin", {element}));
    const ValueId sequence = b.Op("SequenceConstruct", {x[0], x[1], x[2]});
    Values made = b.Ops("", "SequenceMap", {sequence, x[3], x[4]},
                        {{"body", body.graph()}, {CapturesAttribute("body"), Names{"x4"}}}, uses);
    std::erase(made, kNoValue);
    for (ValueId& value : made) {
      value = b.Op("ConcatFromSequence", {value}, {{"axis", int64_t{0}}});
    }
    return made;
  };
  return result;
}

// Two sequences side by side; of the results, one element each is read.
GradientCase MapOfTwo(CaseRandom& random) {
  const int64_t n = random.Between(1, 3);
  const int64_t read = random.Between(-2, 1);
  GradientCase result;
  result.name = "SequenceMap of two sequences";
  result.inputs = {random.Values({n}), random.Values({n}), random.Values({n})};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    Body body(b.type(x[0]).dtype);
    const ValueId left = body.In("left", {n});
    const ValueId right = body.In("right", {n});
    body.Out(body.g().Op("Mul", {body.g().Op("Exp", {left}), right}));
    const ValueId first = b.Op("SequenceConstruct", {x[0], x[1]});
    const ValueId second = b.Op("SequenceConstruct", {x[1], x[2]});
    const Values made = b.Ops("", "SequenceMap", {first, second}, {{"body", body.graph()}}, {true});
    return {b.Op("SequenceAt", {made[0], CountTo(b, read)})};
  };
  return result;
}

// No element: what is captured gets zeros.
GradientCase MapOfNone(CaseRandom& random) {
  const int64_t n = random.Between(1, 3);
  GradientCase result;
  result.name = "SequenceMap of an empty sequence";
  result.inputs = {random.Values({n}), random.Values({n})};
  result.build = [=](GraphBuilder& b, const Values& x) -> Values {
    Body body(b.type(x[0]).dtype);
    const ValueId element = body.In("element", {n});
    const ValueId w = body.In("w", {n});
    body.Out(body.g().Op("Mul", {element, w}));
    const ValueId one = b.Op("SequenceConstruct", {x[0]});
    const ValueId none = b.Op("SequenceErase", {one, CountTo(b, 0)});
    const Values made =
        b.Ops("", "SequenceMap", {none, x[1]},
              {{"body", body.graph()}, {CapturesAttribute("body"), Names{"x1"}}}, {true});
    const ValueId filled = b.Op("SequenceInsert", {made[0], b.Op("Tanh", {x[0]})});
    return {b.Op("SequenceAt", {filled, CountTo(b, 0)})};
  };
  return result;
}

}  // namespace

void AddControlFlowGradients(GradientGenerators& g) {
  g["Scan"] = {ScanOfAll, ScanOfSome, ScanWithoutState, IfInScan};
  for (const End end : {End::kCount, End::kCondition, End::kEither}) {
    g["Loop"].push_back([end](CaseRandom& random) { return LoopThatEnds(random, end); });
  }
  g["Loop"].push_back(LoopOfNoRounds);
  g["Loop"].push_back(ScanInLoop);
  g["If"] = {Branches, IfInScan};
  g["SequenceMap"] = {MapWithCaptures, MapOfTwo, MapOfNone};
}

}  // namespace weft::testing
