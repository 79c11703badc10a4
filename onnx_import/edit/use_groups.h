// UseGroups: which places that read a tensor are one module of the author's program.
#ifndef WEFT_ONNX_IMPORT_EDIT_USE_GROUPS_H_
#define WEFT_ONNX_IMPORT_EDIT_USE_GROUPS_H_

#include <optional>
#include <string>
#include <vector>

#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tensor_values.h"

namespace weft {

// The uses of one tensor that are one parameter of one module, called once or several times.
struct UseGroup {
  std::vector<TensorUse> uses;
  ParameterRole role() const { return uses.front().role; }
};

// Borrows both.
class UseGroups {
 public:
  UseGroups(const TensorUses& uses, TensorValues& values) : uses_(uses), values_(values) {}

  // The uses of a tensor by module and role, the group that is read first in front. Uses of one
  // role are one module when what is known of both is the same, the first of these:
  //  1. the name that an Identity node gives, in a file where TorchScript's exporter wrote any;
  //  2. the module that the exporter left on the node, and the node's other distinct weights;
  //  3. these weights alone;
  //  4. for a node without a weight of its own, the nearest weight before it, or else after it.
  // A distinct weight is one whose elements are not all equal; those of a product count for the
  // bias that is added to it. Two nodes that compute with one value are two modules. Uses without a
  // learnable role are one group for each name.
  std::vector<UseGroup> Of(int tensor);

  // A tensor that a node computes with beside this use, whose elements are not all equal; -1: none.
  int PartnerOf(const TensorUse& use);

 private:
  // Uses of one key are one module's.
  struct Key {
    std::string text = "";
    bool is_behind = false;  // by the weight before its node, which two modules can share
  };
  Key KeyOf(const TensorUse& use);
  // "MatMul.1=12 Add.1=3": the distinct tensors of a use's node, and of the product before it.
  std::string PartnersText(const TensorUse& use);
  std::string PartnersOf(int node, int skipped_tensor);
  // "MatMul.1=12 after 3 nodes": the nearest distinct weight upstream or downstream.
  std::string NearestWeight(int node, int skipped_input, bool upstream);
  std::string WeightAt(int node);
  // Tells uses of one group apart that compute with the same value: one module would not.
  void SplitSameInputs(std::vector<UseGroup>& groups);

  const TensorUses& uses_;
  TensorValues& values_;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_USE_GROUPS_H_
