// TieReport: what an edit of a file's shared tensors has done, as data.
#ifndef WEFT_ONNX_IMPORT_EDIT_TIE_REPORT_H_
#define WEFT_ONNX_IMPORT_EDIT_TIE_REPORT_H_

#include <string>
#include <vector>

namespace weft {

// A tensor that was made, with the values of the one that it was merged with.
struct UntiedTensor {
  std::string name;
  std::string from;    // the tensor of the file
  std::string reader;  // its first reader: "norm1 (LayerNormalization)"
  bool is_statistic = false;
  bool is_asked = false;  // by a pattern; else by the rules
  bool is_told = false;   // its elements differ; the file tells that it was another parameter
};

// A tensor that several modules share, and still do.
struct KeptTie {
  std::string tensor;
  std::vector<std::string> readers;  // the modules or nodes besides the one of its name
};

// Two tensors with the same numbers: `copy` equals `tensor`, or its transposed.
struct CopiedTensor {
  std::string tensor;
  std::string copy;
  bool transposed = false;
  bool is_asked = false;  // by --tie; else by the rules
};

struct TieReport {
  std::vector<UntiedTensor> untied;
  std::vector<KeptTie> kept;
  std::vector<CopiedTensor> tied;
  std::vector<CopiedTensor> copies;  // that --tie could tie
  // Biases of zeros that the exporter had left out (RestoreBiases).
  std::vector<std::string> restored;
};

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_TIE_REPORT_H_
