// Rates that are easy to reckon with, and single nodes to price by them: for tests.
#ifndef WEFT_PLACEMENT_COST_TESTING_ROUND_PROFILE_H_
#define WEFT_PLACEMENT_COST_TESTING_ROUND_PROFILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "placement/cost/cost_model.h"
#include "placement/cost/op_key.h"
#include "placement/graph_views/graph_node_view.h"

namespace weft {

// One thread: a GFLOP/s, 100 MB/s of elementwise ops, 200 MB/s moved, a microsecond per node.
inline DeviceProfile RoundDevice() {
  DeviceProfile device;
  device.name = "round";
  device.contraction[DType::kFloat32] = {{{1, 1e9}}};
  device.elementwise = {{{1, 1e8}}};
  device.movement = {{{1, 2e8}}};
  device.elementwise_flops = 1e9;
  device.node_seconds = 1e-6;
  return device;
}

inline LinkProfile RoundLink(double latency, double rate) {
  LinkProfile link;
  link.latency_seconds = latency;
  link.bytes_per_second = rate;
  return link;
}

// Workers on hosts, in order.
inline ClusterProfile RoundProfile(const std::vector<int>& hosts) {
  ClusterProfile profile;
  profile.devices = {RoundDevice()};
  profile.device_of.assign(hosts.size(), 0);
  profile.host_of = hosts;
  profile.within_host = RoundLink(1e-5, 1e9);
  profile.between_hosts = RoundLink(1e-3, 1e8);
  return profile;
}

inline CostModel ModelOf(ClusterProfile profile) { return *CostModel::Create(std::move(profile)); }

// One node, and how cost and key see it.
class NodeProbe {
 public:
  NodeProbe(const std::string& op, const std::vector<Shape>& shapes, Attributes attributes = {},
            DType dtype = DType::kFloat32) {
    GraphBuilder builder(graph_);
    std::vector<ValueId> inputs;
    for (const Shape& shape : shapes) {
      inputs.push_back(graph_.AddInput("x", {ValueKind::kTensor, dtype, shape}));
    }
    const ValueId output = builder.Op(op, inputs, std::move(attributes));
    EXPECT_TRUE(builder.status().ok()) << builder.status();
    node_ = graph_.value(output).producer;
  }
  GraphNodeView View() const { return *GraphNodeView::Create(graph_, graph_.node(node_)); }
  uint64_t Key() const { return OpKey(View()); }
  Node& node() { return graph_.node(node_); }

 private:
  Graph graph_;
  NodeId node_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_TESTING_ROUND_PROFILE_H_
