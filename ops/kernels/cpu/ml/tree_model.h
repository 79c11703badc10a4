// Decision trees as ai.onnx.ml's tree ensembles encode them, checked and ready to be walked.
#ifndef WEFT_OPS_KERNELS_CPU_ML_TREE_MODEL_H_
#define WEFT_OPS_KERNELS_CPU_ML_TREE_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/attribute.h"

namespace weft::cpu {

// How the votes of several trees for one target become one score.
enum class TreeAggregate : uint8_t { kAverage, kSum, kMin, kMax };

// Immutable; any thread may walk it. Every index is in bounds and no walk is endless.
class TreeModel {
 public:
  // TreeEnsemble's attributes (ai.onnx.ml 5). InvalidArgument says which of them is wrong.
  static absl::StatusOr<TreeModel> FromEnsemble(const Attributes& attributes);
  // Those of TreeEnsembleRegressor (`votes` "target") or TreeEnsembleClassifier ("class").
  static absl::StatusOr<TreeModel> FromNodes(const Attributes& attributes,
                                             const std::string& votes);

  // Features that a row must have.
  int64_t features() const { return features_; }
  // One more than the largest target that a leaf votes for.
  int64_t targets() const { return targets_; }
  int64_t trees() const { return static_cast<int64_t>(roots_.size()); }
  bool has_negative_weight() const { return has_negative_weight_; }
  // The one target that all leaves vote for, or -1.
  int64_t only_target() const { return only_target_; }

  // Calls vote(target, weight) for the leaf that each tree finds for the row.
  template <typename Fn>
  void Walk(const double* row, Fn vote) const {
    for (const int64_t root : roots_) {
      int64_t at = root;
      while (at >= 0) at = Next(nodes_[at], row[nodes_[at].feature]);
      const Leaf& leaf = leaves_[-1 - at];
      for (int64_t v = leaf.begin; v < leaf.end; ++v) vote(votes_[v].target, votes_[v].weight);
    }
  }

 private:
  enum class Mode : uint8_t { kLeq, kLt, kGte, kGt, kEq, kNeq, kMember };
  struct Node {
    Mode mode = Mode::kLeq;
    bool missing_is_true = false;
    int64_t feature = 0;
    double split = 0;
    int64_t set = -1;  // kMember: of sets_
    // Nodes, or -1 - i for leaf i.
    int64_t if_true = 0;
    int64_t if_false = 0;
  };
  struct Vote {
    int64_t target;
    double weight;
  };
  struct Leaf {
    int64_t begin;
    int64_t end;
  };

  int64_t Next(const Node& node, double x) const;
  absl::Status ReadSets(const Attributes& attributes);
  absl::Status ReadVotes(const Attributes& attributes, const std::string& votes,
                         const std::vector<int64_t>& leaf_of);
  // Bounds of everything, and that no node is its own successor.
  absl::Status Check();

  std::vector<Node> nodes_;
  std::vector<Leaf> leaves_;
  std::vector<Vote> votes_;
  std::vector<std::vector<double>> sets_;  // sorted
  std::vector<int64_t> roots_;
  int64_t features_ = 0;
  int64_t targets_ = 0;
  int64_t only_target_ = -1;
  bool has_negative_weight_ = false;
};

// The numbers of a FLOATS or TENSOR attribute, or of the TENSOR `name`_as_tensor.
absl::StatusOr<std::vector<double>> NumbersOf(const Attributes& attributes,
                                              const std::string& name);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_ML_TREE_MODEL_H_
