// Which parameters, optimizer states and updates are split over the data axis (ZeRO: Rajbhandari et
// al. 2020). Internal to placement/.
#ifndef WEFT_PLACEMENT_SHARDING_DATA_SHARDING_H_
#define WEFT_PLACEMENT_SHARDING_DATA_SHARDING_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/sharding.h"
#include "placement/sharding/sharding_propagation.h"

namespace weft {

// Each replica has its rows (axis 0) of what is split: of the tensor shard, as
// AxisSharding::Split(0) over Mesh::data. The first replicas get the extra row.
struct DataShardings {
  // Parameters whose optimizer state is split, and which are themselves when Plan::zero is 3.
  std::set<std::string> parameters;
  // The parameters that stay whole on every replica, each with the reason.
  std::map<std::string, std::string> replicated;
  // Nodes that each replica runs for its rows only: for each input whether it reads its rows of it
  // (else all). It makes its rows of all outputs.
  std::map<NodeId, std::vector<bool>> nodes;

  bool empty() const { return parameters.empty(); }
};

// How variables lie along the tensor axis, by name; missing = replicated.
using VariableShardings = std::map<std::string, AxisSharding>;

// Whether the update of one parameter can run on rows, whatever the replicas and the tensor axis.
struct RowUpdate {
  std::string obstacle;  // empty: it can
  bool has_state = false;
  // The nodes between the parameter with its state and their new values, by name: for each input
  // whether it is read by rows.
  std::map<std::string, std::vector<bool>> nodes;
};
// By parameter, of a training graph in which updates have concrete shapes: asks the nodes' schemas.
using RowUpdates = std::map<std::string, RowUpdate>;
RowUpdates FindRowUpdates(const Graph& graph);

// For a training graph. Reasons in Plan::zero_replicated are kept. Empty unless the plan shards
// state over several replicas. `updates`: of this graph, or of the same for other shapes of the
// data.
DataShardings FindDataShardings(const Graph& graph, const Plan& plan,
                                const VariableShardings& tensor_shardings);
DataShardings FindDataShardings(const Graph& graph, const Plan& plan,
                                const VariableShardings& tensor_shardings,
                                const RowUpdates& updates);

// Who reads what, for the questions below: found once for a graph. Borrows its arguments.
class RowReaders {
 public:
  RowReaders(const Graph& graph, const ShardingDecisions& shardings);
  const Graph& graph() const { return graph_; }
  const ShardingDecisions& shardings() const { return shardings_; }
  // All readers of the value are among `data.nodes`, and read their rows of it as it lies along the
  // tensor axis. False of a value that nothing reads, a report and the new value of a variable.
  bool ReadRowsOnly(ValueId value, const DataShardings& data) const;

 private:
  const Graph& graph_;
  const ShardingDecisions& shardings_;
  const std::vector<std::vector<Graph::Use>> uses_;
  std::vector<bool> leaves_;  // by ValueId: a report, or the new value of a variable
};

// Adds the nodes whose rows only such nodes read (the scaling of a gradient), as far as they stay
// on one stage and keep their sharding along the tensor axis.
void ExtendToInputs(const RowReaders& readers, DataShardings& data);

// For an evaluation graph, which has no updates: the parameters that a job of this plan keeps
// split.
DataShardings FindStoredShardings(const Graph& graph, const Plan& plan,
                                  const VariableShardings& tensor_shardings);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SHARDING_DATA_SHARDING_H_
