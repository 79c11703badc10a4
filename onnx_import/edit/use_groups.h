// UseGroups: which places that read a tensor are one module of the author's program.
#ifndef WEFT_ONNX_IMPORT_EDIT_USE_GROUPS_H_
#define WEFT_ONNX_IMPORT_EDIT_USE_GROUPS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tensor_values.h"

namespace weft {

// The uses of one tensor that are one parameter of one module, called once or several times.
struct UseGroup {
  std::vector<TensorUse> uses;
  // Whether nothing but the nearest weight, or none, tells it from other groups of its role. A
  // module without weights that is called several times can look so.
  bool is_guess = false;
  ParameterRole role() const { return uses.front().role; }
};

// Borrows both.
class UseGroups {
 public:
  // `originals`: by tensor, the one that it is a copy of and stands for here.
  UseGroups(const TensorUses& uses, TensorValues& values, std::map<int, int> originals = {})
      : uses_(uses), values_(values), originals_(std::move(originals)) {}

  // The uses of a tensor by module and role, the group that is read first in front. Uses of one
  // role are one module when what is known of both is the same, the first of these:
  //  1. the name that an Identity node gives, in a file where TorchScript's exporter wrote any;
  //  2. the module that the exporter left on the node, and the node's other distinct weights;
  //  3. these weights alone;
  //  4. for a node without a weight of its own, the nearest weight before it, or else after it.
  // A distinct weight is one whose elements are not all equal; those of a product count for the
  // bias that is added to it. The search for the nearest one looks at some 4,000 inputs and outputs
  // of nodes, and all searches together at some 67 million, so that no file makes it last. Two
  // nodes that compute with one value are two modules. Uses without a learnable role are one group
  // for each name.
  std::vector<UseGroup> Of(int tensor);

  // The tensor itself, or the one that it is a copy of.
  int OriginalOf(int tensor) const {
    const auto found = originals_.find(tensor);
    return found == originals_.end() ? tensor : found->second;
  }

  // A tensor that a node computes with beside this use, whose elements are not all equal; -1: none.
  int PartnerOf(const TensorUse& use);

 private:
  // Uses of one key are one module's.
  struct Key {
    std::string text = "";
    bool is_guess = false;   // of UseGroup
    bool is_behind = false;  // by the weight before its node, which two modules can share
  };
  // The distinct tensors that a node computes with.
  struct Partners {
    std::string text = "";  // "MatMul.1=12 Add.1=3", by port
    int first = -1;         // the first of these tensors
  };
  Key KeyOf(const TensorUse& use);
  // Those of a use's node, or else of the product before it.
  Partners PartnersAt(const TensorUse& use);
  Partners PartnersOf(int node, int skipped_tensor);
  // "MatMul.1=12 after 3 nodes": the nearest distinct weight upstream or downstream.
  std::string NearestWeight(int node, int skipped_input, bool upstream);
  // "MatMul.1=12".
  std::string WeightAt(int node);
  // Tells uses of one group apart that compute with the same value: one module would not.
  void SplitSameInputs(std::vector<UseGroup>& groups);

  const TensorUses& uses_;
  TensorValues& values_;
  const std::map<int, int> originals_;
  int64_t looked_at_ = 0;  // by all searches
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_USE_GROUPS_H_
