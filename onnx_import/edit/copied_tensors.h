// Tensors that hold the same numbers twice: ties that an exporter's constant folding has cut.
#ifndef WEFT_ONNX_IMPORT_EDIT_COPIED_TENSORS_H_
#define WEFT_ONNX_IMPORT_EDIT_COPIED_TENSORS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "onnx_import/edit/file_edit.h"
#include "onnx_import/edit/tensor_uses.h"
#include "onnx_import/edit/tensor_values.h"
#include "onnx_import/edit/tie_report.h"

namespace weft {

// Initializers of rank 2 and more and 1,024 elements and more, each a weight of some node, whose
// elements are those of another one, or of its transposed. One whose elements are all equal is no
// copy of anything. The table of an embedding comes first in a pair, then a tensor with a name of
// its own (not "onnx::MatMul_12" or "val_3"), then the first of the file. In the order of the file.
// Reads eight elements of each tensor, and only those whole that agree in them.
std::vector<CopiedTensor> FindCopies(const TensorUses& uses, TensorValues& values);

// Adds to `edit` what makes `tie.copy` read `tie.tensor`, through a node called as the copy is: a
// Transpose, or an Identity. Frees the copy's own payload.
void TieCopy(const TensorUses& uses, const CopiedTensor& tie, FileEdit& edit);

// The ties of `--tie` ("A=B": B reads A; "auto": all copies). InvalidArgument where a text is none
// of both, A or B is no initializer, the two hold different numbers, or one tensor is tied twice.
absl::StatusOr<std::vector<CopiedTensor>> ParseTies(const TensorUses& uses, TensorValues& values,
                                                    const std::vector<std::string>& texts,
                                                    const std::vector<CopiedTensor>& copies);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_COPIED_TENSORS_H_
