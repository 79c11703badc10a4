// The names of ops, and the schema of an op by its name, without knowing what a schema is.
#ifndef WEFT_GRAPH_SCHEMA_LOOKUP_H_
#define WEFT_GRAPH_SCHEMA_LOOKUP_H_

#include <string>
#include <string_view>

namespace weft {

class OpSchema;

// "" for "ai.onnx", which is another name of ONNX's own domain.
std::string_view CanonicalDomain(std::string_view domain);
// "Gemm", "ai.weft::SgdUpdate".
std::string FullOpName(std::string_view domain, std::string_view op);

// The schema that is registered for the op, null when there is none (OpRegistry::Find in
// graph/op_schema.h). `domain` "ai.onnx" means "". Thread-safe once all ops are registered.
const OpSchema* FindOpSchema(std::string_view domain, std::string_view name);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEMA_LOOKUP_H_
