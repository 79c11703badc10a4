// Which version of the file format came with an operator set.
#ifndef WEFT_ONNX_IMPORT_CODEC_IR_VERSIONS_H_
#define WEFT_ONNX_IMPORT_CODEC_IR_VERSIONS_H_

#include <cstdint>
#include <string_view>

namespace weft {

// The IR version of the first ONNX release with this operator set: programs that run the set can
// read it. From the table of releases in ONNX's docs/Versioning.md, up to ONNX 1.23. `domain` is
// "", "ai.onnx.ml", "ai.onnx.training" or another one; of others, which no release has,
// kOldestIrVersion. kNewestIrVersion for a later set than is known. REQUIRES: version >= 1.
int64_t IrVersionOfOpset(std::string_view domain, int64_t version);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_IR_VERSIONS_H_
