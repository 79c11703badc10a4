// Training graphs and clusters whose plans can be reckoned with by hand: for tests.
#ifndef WEFT_PLACEMENT_SEARCH_TESTING_LAYERS_H_
#define WEFT_PLACEMENT_SEARCH_TESTING_LAYERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/cluster_spec.h"
#include "graph/graph_builder.h"
#include "graph/schedule/memory_plan.h"
#include "gtest/gtest.h"
#include "placement/search/plan_space.h"

namespace weft {

// The training graph of layers y = relu(x w) with the loss sum(y), written by hand: plain SGD.
class Layers {
 public:
  // The labels are what comes of `made`: values of so many bytes per sample and lifetimes, in any
  // unit of time. Without them they are an input.
  Layers(int count, int64_t width, const std::vector<BufferLifetime>& made = {}) {
    builder_.set_phase(Phase::kForward);
    ValueId x = graph_.AddInput(
        "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(width)})});
    std::vector<ValueId> inputs;
    for (int i = 0; i < count; ++i) {
      inputs.push_back(x);
      const std::string name = "fc" + std::to_string(i);
      weights_.push_back(graph_.AddVariable(
          "w" + std::to_string(i), {ValueKind::kTensor, DType::kFloat32, Shape{width, width}},
          Tensor(), true));
      builder_.set_name_prefix(name + "/");
      x = builder_.Op("MatMul", {x, weights_.back()});
    }
    builder_.set_name_prefix("loss/");
    ValueId labels = graph_.AddInput(
        "labels", {ValueKind::kTensor, DType::kFloat32,
                   SymbolicShape({Dim::Symbol("N"), Dim(made.empty() ? width : 1)})});
    if (!made.empty()) labels = Product(MakeInTurn(labels, made), 1, width);
    const ValueId error = builder_.WeftOp("SquaredErrorSum", {x, labels});
    const ValueId samples = builder_.WeftOp("ElementCount", {x});
    In(Phase::kBackward, "grad/loss/", "loss/SquaredErrorSum");
    ValueId gradient =
        builder_.WeftOp("SquaredErrorGrad", {builder_.Scalar(DType::kFloat32, 1), x, labels});
    std::vector<ValueId> gradients(count);
    for (int i = count - 1; i >= 0; --i) {
      const std::string name = "fc" + std::to_string(i);
      In(Phase::kBackward, "grad/" + name + "/", name + "/MatMul");
      gradients[i] = builder_.WeftOp("MatMul", {inputs[i], gradient}, {{"transA", int64_t{1}}});
      if (i > 0) {
        gradient = builder_.WeftOp("MatMul", {gradient, weights_[i]}, {{"transB", int64_t{1}}});
      }
    }
    AddStep(error, samples, gradients);
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }
  const Graph& graph() const { return graph_; }

 private:
  // x w for a w that is not trained.
  ValueId Product(ValueId x, int64_t from, int64_t to) {
    const std::string name = "given" + std::to_string(graph_.variables().size());
    return builder_.Op(
        "MatMul",
        {x, graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, Shape{from, to}},
                               Tensor(), false)});
  }
  // A number per sample from values that are made of such a number and summed up, each at its time.
  ValueId MakeInTurn(ValueId number, const std::vector<BufferLifetime>& values) {
    std::map<int, size_t> turns;
    for (size_t i = 0; i < values.size(); ++i) turns[values[i].first] = turns[values[i].last] = i;
    EXPECT_EQ(turns.size(), 2 * values.size());
    std::vector<ValueId> made(values.size());
    ValueId sum = number;
    for (const auto& [time, i] : turns) {
      const int64_t width = values[i].bytes / 4;
      if (time == values[i].first) {
        made[i] = Product(number, 1, width);
      } else {
        sum = builder_.Op("Add", {sum, Product(made[i], width, 1)});
      }
    }
    return sum;
  }
  void In(Phase phase, const std::string& prefix, const std::string& forward) {
    builder_.set_phase(phase);
    builder_.set_name_prefix(prefix);
    builder_.set_origin({forward, "", !forward.empty()});
  }
  void AddStep(ValueId error, ValueId samples, const std::vector<ValueId>& gradients) {
    In(Phase::kUpdate, "step/", "");
    const ValueId weight = builder_.WeftOp("Accumulate", {samples});
    const ValueId loss = builder_.Op("Div", {builder_.WeftOp("Accumulate", {error}), weight});
    builder_.Name(loss, "loss");
    graph_.AddOutput(loss);
    const ValueId rate = graph_.AddInput(
        "learning_rate", {ValueKind::kTensor, DType::kFloat32, Shape{}}, InputRole::kStep);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const std::string name = "w" + std::to_string(i);
      builder_.set_name_prefix("update/" + name + "/");
      builder_.set_origin({"fc" + std::to_string(i) + "/MatMul", name, true});
      const ValueId sum = builder_.WeftOp("Accumulate", {gradients[i]});
      const ValueId mean = builder_.Op("Div", {sum, weight});
      graph_.SetVariableUpdate(name, builder_.WeftOp("SgdUpdate", {weights_[i], mean, rate}));
    }
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  std::vector<ValueId> weights_;
};

// `workers` on each of `hosts`, with a link between hosts.
inline ClusterSpec ClusterOf(int hosts, int workers, double bytes_per_second) {
  ClusterSpec cluster;
  for (int host = 0; host < hosts; ++host) {
    for (int i = 0; i < workers; ++i) {
      WorkerSpec worker;
      worker.name = "worker:" + std::to_string(cluster.workers.size());
      worker.host = "host" + std::to_string(host);
      worker.address = worker.host + ":" + std::to_string(4000 + i);
      worker.threads = 1;
      cluster.workers.push_back(worker);
    }
    for (int other = 0; other < host; ++other) {
      LinkSpec link;
      link.from = "host" + std::to_string(other);
      link.to = "host" + std::to_string(host);
      link.bandwidth_bytes_per_second = bytes_per_second;
      link.latency_seconds = 1e-4;
      cluster.links.push_back(link);
    }
  }
  return cluster;
}

// Everything that there is to look at on some workers, and the neighbours of all of it.
inline std::vector<PlanChoice> AllChoices(const PlanSpace& space) {
  std::vector<PlanChoice> all;
  for (const PlanChoice& mesh : space.meshes()) {
    for (const auto& variants : {space.FastVariants(mesh), space.SmallVariants(mesh)}) {
      for (const PlanChoice& one : variants) {
        all.push_back(one);
        for (PlanChoice& other : space.Neighbours(one)) all.push_back(std::move(other));
      }
    }
  }
  return all;
}

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_TESTING_LAYERS_H_
