// custom_op.h: all that a library of custom operators includes. It needs nothing else of Weft and
// may be built with any compiler for C++17 or newer: the library and graph_runner meet at the C ABI
// of part 1, whose version both sides compare before anything else. Part 2 is a face for C++ on top
// of it, compiled into the library.
//
//   #include "custom_op.h"
//   namespace op = weft::custom;
//
//   void RunSquare(op::KernelContext& context) {
//     context.Dispatch<float, double>(context.Input(0).dtype, [&](auto zero) {
//       using T = decltype(zero);
//       const T* x = context.Input(0).Data<T>();
//       T* y = context.Output(0).Data<T>();
//       context.ParallelFor(context.Output(0).Elements(), 0.5, [&](int64_t begin, int64_t end) {
//         for (int64_t i = begin; i < end; ++i) y[i] = x[i] * x[i];
//       });
//     });
//   }
//
//   WEFT_OP_LIBRARY(library) {
//     library.Op("example", "Square")
//         .Input("x", {op::kFloat32, op::kFloat64})
//         .Output("y")
//         .Infer([](op::InferContext& context) { context.SetOutput(0, context.InputType(0)); })
//         .Cpu(RunSquare)
//         .Gradient([](op::GradientContext& context) {
//           const op::Value twice = context.Op("", "Add", {context.Input(0), context.Input(0)});
//           context.SetInputGradient(0, context.Op("", "Mul", {twice, context.OutputGradient(0)}));
//         })
//         .Sharding("... -> ...");
//   }
//
// Build it with `c++ -std=c++17 -O2 -fPIC -shared -I DIR square.cc -o square.so`, hold it against
// itself with `graph_runner op check square.so`, and use it with `--op_library square.so`.
#ifndef WEFT_OPS_CUSTOM_OP_H_
#define WEFT_OPS_CUSTOM_OP_H_

#include <stddef.h>
#include <stdint.h>

// ---- Part 1: the C ABI. -----------------------------------------------------------------------
//
// Structs that the host makes carry their size where they may grow: a newer host adds members at
// their end only. Anything else is a new version.

#define WEFT_CUSTOM_OP_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

// One call of a function of the library; opaque to it, void when the function returns.
typedef struct WeftCall WeftCall;

// A contiguous, row-major tensor in the memory of the device. `dtype` is ONNX's number
// (TensorProto.DataType). Inputs must not be written. `data` may be null when there are no
// elements. `global_dims` and `offset` say where a shard lies in its whole tensor: `dims` and zeros
// when the tensor is not sharded.
typedef struct WeftTensor {
  void* data;
  const int64_t* dims;
  const int64_t* global_dims;
  const int64_t* offset;
  int32_t rank;
  int32_t dtype;
} WeftTensor;

// The type of a value. Rank -1: not known. A dimension >= 0 is a size; < 0 is a size that is not
// known yet, and equal numbers are equal sizes: it may be copied, not calculated with.
typedef struct WeftType {
  int32_t dtype;
  int32_t rank;
  const int64_t* dims;
} WeftType;

enum { WEFT_INT = 0, WEFT_FLOAT = 1, WEFT_STRING = 2, WEFT_INTS = 3, WEFT_FLOATS = 4 };

// An attribute; `type` says which member counts, `count` how many characters or numbers there are.
typedef struct WeftAttribute {
  const char* name;
  int32_t type;
  int64_t i;
  float f;
  const char* s;
  const int64_t* ints;
  const float* floats;
  size_t count;
} WeftAttribute;

// A value of the graph, in a gradient; 0 is none.
typedef int32_t WeftValue;

// What the host does for the library. Which functions may be called when is said by part 2.
typedef struct WeftHost {
  uint32_t abi_version;
  uint32_t size;  // of this struct
  // Any call.
  void (*fail)(WeftCall*, const char* message);
  int32_t (*num_inputs)(const WeftCall*);
  int32_t (*num_outputs)(const WeftCall*);
  int32_t (*has_input)(const WeftCall*, int32_t i);
  int32_t (*has_output)(const WeftCall*, int32_t i);
  int32_t (*attribute)(const WeftCall*, const char* name, WeftAttribute* attribute);  // 0: absent
  // Shape functions; input_type and output_type also for costs.
  void (*input_type)(const WeftCall*, int32_t i, WeftType* type);
  void (*output_type)(const WeftCall*, int32_t i, WeftType* type);
  int32_t (*input_value)(const WeftCall*, int32_t i, WeftTensor* value);  // 0: not known
  void (*set_output_type)(WeftCall*, int32_t i, const WeftType* type);
  // Kernels.
  void (*input)(const WeftCall*, int32_t i, WeftTensor* tensor);
  void (*output)(const WeftCall*, int32_t i, WeftTensor* tensor);
  void (*parallel_for)(WeftCall*, int64_t items, double nanoseconds_per_item,
                       void (*body)(void* argument, int64_t begin, int64_t end), void* argument);
  void* (*stream)(const WeftCall*);
  int64_t (*step)(const WeftCall*);
  // Gradients.
  WeftValue (*input_value_id)(const WeftCall*, int32_t i);
  WeftValue (*output_value_id)(WeftCall*, int32_t i);
  WeftValue (*output_gradient)(const WeftCall*, int32_t i);
  int32_t (*needs_input_gradient)(const WeftCall*, int32_t i);
  void (*set_input_gradient)(WeftCall*, int32_t i, WeftValue gradient);
  void (*add_node)(WeftCall*, const char* domain, const char* op, const WeftValue* inputs,
                   int32_t num_inputs, const WeftAttribute* attributes, int32_t num_attributes,
                   WeftValue* outputs, int32_t num_outputs);
  WeftValue (*constant)(WeftCall*, int32_t dtype, double value);
} WeftHost;

enum { WEFT_OPTIONAL = 1, WEFT_VARIADIC = 2, WEFT_LEARNABLE = 4, WEFT_NEVER_LEARNABLE = 8 };

typedef struct WeftOperand {
  const char* name;
  const int32_t* dtypes;
  int32_t num_dtypes;  // 0: any
  int32_t flags;
} WeftOperand;

typedef struct WeftAttributeDeclaration {
  const char* name;
  int32_t type;
  int32_t required;
} WeftAttributeDeclaration;

// A function of the library gets the descriptor's `user` back, and says what went wrong by calling
// `fail`. It must not throw and may be called from any thread, several at a time.
typedef void (*WeftFunction)(const WeftHost* host, WeftCall* call, const void* user);

typedef struct WeftOpDescriptor {
  const char* domain;  // of the library's own: not "", "ai.onnx" or "ai.weft"
  const char* name;
  const WeftOperand* inputs;
  const WeftOperand* outputs;
  const WeftAttributeDeclaration* attributes;
  const int32_t* value_inputs;  // inputs whose values decide shapes
  int32_t num_inputs;
  int32_t num_outputs;
  int32_t num_attributes;
  int32_t num_value_inputs;
  WeftFunction infer;          // required
  WeftFunction run_cpu;        // null: none
  WeftFunction run_cuda;       // null: none
  WeftFunction gradient;       // null: none
  int32_t not_differentiable;  // by nature: no gradient flows, and that is no error
  const char* sharding;        // see OpBuilder::Sharding; null: never split
  double (*flops)(const WeftHost* host, WeftCall* call, const void* user);  // null: one per element
  const void* user;
} WeftOpDescriptor;

typedef struct WeftOpLibrary {
  const WeftOpDescriptor* ops;
  uint32_t num_ops;
} WeftOpLibrary;

// The two symbols that a library exports. The version is asked for first. Everything that the
// second one returns lives as long as the process.
typedef uint32_t (*WeftAbiVersionFunction)(void);
typedef const WeftOpLibrary* (*WeftOpLibraryFunction)(void);
#define WEFT_ABI_VERSION_SYMBOL "weft_op_library_abi_version"
#define WEFT_OP_LIBRARY_SYMBOL "weft_op_library"

#ifdef __cplusplus
}  // extern "C"

// ---- Part 2: the face for C++. ----------------------------------------------------------------

#include <atomic>
#include <deque>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::custom {

// ONNX's numbers.
enum DType : int32_t {
  kFloat32 = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kFloat64 = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBfloat16 = 16,
};

template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, float>) return kFloat32;
  if constexpr (std::is_same_v<T, double>) return kFloat64;
  if constexpr (std::is_same_v<T, int8_t>) return kInt8;
  if constexpr (std::is_same_v<T, int16_t>) return kInt16;
  if constexpr (std::is_same_v<T, int32_t>) return kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return kInt64;
  if constexpr (std::is_same_v<T, uint8_t>) return kUint8;
  if constexpr (std::is_same_v<T, uint16_t>) return kUint16;
  if constexpr (std::is_same_v<T, uint32_t>) return kUint32;
  if constexpr (std::is_same_v<T, uint64_t>) return kUint64;
  if constexpr (std::is_same_v<T, bool>) return kBool;
}

// See WeftType. `dims` counts only when `has_rank`.
struct Type {
  int32_t dtype = 0;
  bool has_rank = false;
  std::vector<int64_t> dims;
  static bool IsKnown(int64_t dim) { return dim >= 0; }
  // A size that cannot be told yet.
  static constexpr int64_t kUnknown = INT64_MIN;
};

// See WeftTensor.
struct Tensor : WeftTensor {
  int64_t Elements() const { return Product(0, rank); }
  // Elements in the dimensions [begin, end).
  int64_t Product(int begin, int end) const {
    int64_t product = 1;
    for (int axis = begin; axis < end; ++axis) product *= dims[axis];
    return product;
  }
  // Throws unless the elements are of type T.
  template <typename T>
  T* Data() const {
    if (dtype != DTypeOf<T>()) {
      throw std::invalid_argument("the tensor's elements are of type " + std::to_string(dtype) +
                                  ", the kernel asked for " + std::to_string(DTypeOf<T>()));
    }
    return static_cast<T*>(data);
  }
};

// What all calls have. An exception that leaves a function of the library is caught, and its text
// is the error of the node.
class Context {
 public:
  Context(const WeftHost* host, WeftCall* call) : host_(host), call_(call) {}
  int num_inputs() const { return host_->num_inputs(call_); }
  int num_outputs() const { return host_->num_outputs(call_); }
  bool HasInput(int i) const { return host_->has_input(call_, i) != 0; }
  bool HasOutput(int i) const { return host_->has_output(call_, i) != 0; }
  // The attribute, or `fallback` when the node does not have it.
  int64_t Int(const char* name, int64_t fallback) const {
    WeftAttribute a;
    return Find(name, WEFT_INT, &a) ? a.i : fallback;
  }
  float Float(const char* name, float fallback) const {
    WeftAttribute a;
    return Find(name, WEFT_FLOAT, &a) ? a.f : fallback;
  }
  std::string String(const char* name, const std::string& fallback) const {
    WeftAttribute a;
    return Find(name, WEFT_STRING, &a) ? std::string(a.s, a.count) : fallback;
  }
  std::vector<int64_t> Ints(const char* name, std::vector<int64_t> fallback = {}) const {
    WeftAttribute a;
    if (!Find(name, WEFT_INTS, &a)) return fallback;
    return std::vector<int64_t>(a.ints, a.ints + a.count);
  }
  std::vector<float> Floats(const char* name, std::vector<float> fallback = {}) const {
    WeftAttribute a;
    if (!Find(name, WEFT_FLOATS, &a)) return fallback;
    return std::vector<float>(a.floats, a.floats + a.count);
  }

 protected:
  bool Find(const char* name, int32_t type, WeftAttribute* attribute) const {
    return host_->attribute(call_, name, attribute) != 0 && attribute->type == type;
  }
  static custom::Type Copy(const WeftType& type) {
    custom::Type copy;
    copy.dtype = type.dtype;
    copy.has_rank = type.rank >= 0;
    if (type.rank > 0) copy.dims.assign(type.dims, type.dims + type.rank);
    return copy;
  }

  const WeftHost* host_;
  WeftCall* call_;
};

// What a shape function sees. It sets the type of every output, from the types of the inputs.
class InferContext : public Context {
 public:
  using Context::Context;
  custom::Type InputType(int i) const {
    WeftType type;
    host_->input_type(call_, i, &type);
    return Copy(type);
  }
  // The input's elements where they are known ahead (constants); false where not.
  bool InputValue(int i, Tensor* value) const { return host_->input_value(call_, i, value) != 0; }
  void SetOutput(int i, const custom::Type& type) {
    const WeftType raw{type.dtype, type.has_rank ? static_cast<int32_t>(type.dims.size()) : -1,
                       type.dims.data()};
    host_->set_output_type(call_, i, &raw);
  }
};

// What a cost function sees: all shapes are known.
class CostContext : public Context {
 public:
  using Context::Context;
  custom::Type InputType(int i) const {
    WeftType type;
    host_->input_type(call_, i, &type);
    return Copy(type);
  }
  custom::Type OutputType(int i) const {
    WeftType type;
    host_->output_type(call_, i, &type);
    return Copy(type);
  }
};

// What a kernel sees. It writes every element of every wanted output.
class KernelContext : public Context {
 public:
  using Context::Context;
  // REQUIRES: HasInput(i), HasOutput(i).
  Tensor Input(int i) const {
    Tensor tensor;
    host_->input(call_, i, &tensor);
    return tensor;
  }
  Tensor Output(int i) const {
    Tensor tensor;
    host_->output(call_, i, &tensor);
    return tensor;
  }
  // Shares the iterations [0, items) among the threads the kernel may use: body(begin, end) for
  // ranges that cover them, each once, in any order and at the same time. So no two iterations may
  // write the same element. `nanoseconds_per_item` is about what one takes.
  template <typename Body>
  void ParallelFor(int64_t items, double nanoseconds_per_item, Body&& body) {
    // An exception must not leave a thread of the host: the first one is thrown again here.
    struct Loop {
      std::remove_reference_t<Body>* body;
      std::exception_ptr error;
      std::atomic_flag failed = ATOMIC_FLAG_INIT;
    } loop{&body, {}};
    host_->parallel_for(
        call_, items, nanoseconds_per_item,
        [](void* argument, int64_t begin, int64_t end) {
          Loop& mine = *static_cast<Loop*>(argument);
          try {
            (*mine.body)(begin, end);
          } catch (...) {
            if (!mine.failed.test_and_set()) mine.error = std::current_exception();
          }
        },
        &loop);
    if (loop.error) std::rethrow_exception(loop.error);
  }
  // Calls fn(T{}) with the one of the types that `dtype` names; throws when it is none of them.
  template <typename... Ts, typename Fn>
  static void Dispatch(int32_t dtype, Fn&& fn) {
    const bool done = ((dtype == DTypeOf<Ts>() ? (fn(Ts{}), true) : false) || ...);
    if (!done) throw std::invalid_argument("no kernel for element type " + std::to_string(dtype));
  }
  // On CUDA: the cudaStream_t to launch on. Null on the CPU.
  void* stream() const { return host_->stream(call_); }
  // The number of the training step, for random numbers.
  int64_t step() const { return host_->step(call_); }
};

// A value of the graph; none when false.
struct Value {
  WeftValue id = 0;
  explicit operator bool() const { return id != 0; }
};

struct Attribute {
  Attribute(const char* name, int64_t i) : name(name), type(WEFT_INT), i(i) {}
  Attribute(const char* name, int i) : Attribute(name, int64_t{i}) {}
  Attribute(const char* name, float f) : name(name), type(WEFT_FLOAT), f(f) {}
  Attribute(const char* name, std::string s) : name(name), type(WEFT_STRING), s(std::move(s)) {}
  Attribute(const char* name, std::vector<int64_t> v)
      : name(name), type(WEFT_INTS), ints(std::move(v)) {}
  Attribute(const char* name, std::vector<float> v)
      : name(name), type(WEFT_FLOATS), floats(std::move(v)) {}

  const char* name;
  int32_t type;
  int64_t i = 0;
  float f = 0;
  std::string s;
  std::vector<int64_t> ints;
  std::vector<float> floats;
};

// What a gradient rule sees: it adds nodes that compute the gradients of inputs from those of
// outputs. Nodes may be of any op: ONNX's (domain ""), Weft's or the library's own.
class GradientContext : public Context {
 public:
  using Context::Context;
  Value Input(int i) const { return {host_->input_value_id(call_, i)}; }
  // Also an output that the model did not ask for: the node then computes it.
  Value Output(int i) { return {host_->output_value_id(call_, i)}; }
  // The gradient that arrived at output i; none means zero.
  Value OutputGradient(int i) const { return {host_->output_gradient(call_, i)}; }
  // False: computing it would be in vain.
  bool NeedsInputGradient(int i) const { return host_->needs_input_gradient(call_, i) != 0; }
  // An input that is not set has the gradient zero.
  void SetInputGradient(int i, Value gradient) { host_->set_input_gradient(call_, i, gradient.id); }
  Value Op(const char* domain, const char* op, std::initializer_list<Value> inputs,
           std::initializer_list<Attribute> attributes = {}) {
    return Ops(domain, op, inputs, 1, attributes)[0];
  }
  std::vector<Value> Ops(const char* domain, const char* op, std::initializer_list<Value> inputs,
                         int num_outputs, std::initializer_list<Attribute> attributes = {}) {
    std::vector<WeftValue> in;
    for (const Value& value : inputs) in.push_back(value.id);
    std::vector<WeftAttribute> raw;
    for (const Attribute& a : attributes) {
      const size_t count = a.type == WEFT_INTS     ? a.ints.size()
                           : a.type == WEFT_FLOATS ? a.floats.size()
                                                   : a.s.size();
      raw.push_back({a.name, a.type, a.i, a.f, a.s.data(), a.ints.data(), a.floats.data(), count});
    }
    std::vector<WeftValue> out(static_cast<size_t>(num_outputs));
    host_->add_node(call_, domain, op, in.data(), static_cast<int32_t>(in.size()), raw.data(),
                    static_cast<int32_t>(raw.size()), out.data(), num_outputs);
    std::vector<Value> values;
    for (const WeftValue id : out) values.push_back({id});
    return values;
  }
  // A scalar.
  Value Constant(DType dtype, double value) { return {host_->constant(call_, dtype, value)}; }
};

// Declares one op. The functions are plain ones or lambdas that capture nothing.
class OpBuilder {
 public:
  OpBuilder(const char* domain, const char* name) : domain_(domain), name_(name) {}

  // Operands in the order of the node. No dtypes: any.
  OpBuilder& Input(const char* name, std::vector<int32_t> dtypes = {}) {
    return Add(inputs_, name, std::move(dtypes), 0);
  }
  OpBuilder& Input(const char* name, std::initializer_list<DType> dtypes) {
    return Add(inputs_, name, {dtypes.begin(), dtypes.end()}, 0);
  }
  OpBuilder& OptionalInput(const char* name, std::initializer_list<DType> dtypes = {}) {
    return Add(inputs_, name, {dtypes.begin(), dtypes.end()}, WEFT_OPTIONAL);
  }
  OpBuilder& VariadicInput(const char* name, std::initializer_list<DType> dtypes = {}) {
    return Add(inputs_, name, {dtypes.begin(), dtypes.end()}, WEFT_VARIADIC);
  }
  // Of the input declared last: a float initializer there is a parameter to train, even a scalar;
  // or never one (scales, running statistics).
  OpBuilder& Learnable() { return Flag(WEFT_LEARNABLE); }
  OpBuilder& NeverLearnable() { return Flag(WEFT_NEVER_LEARNABLE); }
  OpBuilder& Output(const char* name) { return Add(outputs_, name, {}, 0); }
  OpBuilder& OptionalOutput(const char* name) { return Add(outputs_, name, {}, WEFT_OPTIONAL); }
  // `type` is WEFT_INT, WEFT_FLOAT, ...
  OpBuilder& Attr(const char* name, int32_t type, bool required = false) {
    attributes_.push_back({name, type, required});
    return *this;
  }
  // Input i decides shapes: its value must be known before the node runs.
  OpBuilder& ValueInput(int i) {
    value_inputs_.push_back(i);
    return *this;
  }
  OpBuilder& Infer(void (*infer)(InferContext&)) {
    infer_ = infer;
    return *this;
  }
  OpBuilder& Cpu(void (*run)(KernelContext&)) {
    cpu_ = run;
    return *this;
  }
  // Launches on context.stream(); operands are in the device's memory.
  OpBuilder& Cuda(void (*run)(KernelContext&)) {
    cuda_ = run;
    return *this;
  }
  OpBuilder& Gradient(void (*gradient)(GradientContext&)) {
    gradient_ = gradient;
    return *this;
  }
  // No gradient flows through it, by its nature.
  OpBuilder& NotDifferentiable() {
    not_differentiable_ = true;
    return *this;
  }
  // How the op may be split over devices, in index notation: a name per dimension, the inputs,
  // "->", the outputs. Equal names are equal sizes. "..." stands for any number of leading
  // dimensions.
  //   "... -> ..."                            every element stands alone
  //   "... m k, k n -> ... m n; linear 0; linear 1"   a matrix product: k is summed over
  //   "... c! -> ... c!"                      a softmax: "!" is a dimension that is needed whole
  //   "... (2 h) -> ... h"                    two blocks side by side, each split alike
  //   "1"                                     a dimension of size one, or of any size never split
  // A name that only inputs have is summed over. After ";" come sets of inputs in which the op is
  // jointly linear ("linear 0 1" for an addition): partial sums may pass there.
  OpBuilder& Sharding(const char* notation) {
    sharding_ = notation;
    return *this;
  }
  // Floating-point operations of one run.
  OpBuilder& Flops(double (*flops)(CostContext&)) {
    flops_ = flops;
    return *this;
  }

  // The descriptor points into this builder.
  WeftOpDescriptor Describe() {
    raw_inputs_ = Raw(inputs_);
    raw_outputs_ = Raw(outputs_);
    WeftOpDescriptor d{};
    d.domain = domain_;
    d.name = name_;
    d.inputs = raw_inputs_.data();
    d.outputs = raw_outputs_.data();
    d.attributes = attributes_.data();
    d.value_inputs = value_inputs_.data();
    d.num_inputs = static_cast<int32_t>(raw_inputs_.size());
    d.num_outputs = static_cast<int32_t>(raw_outputs_.size());
    d.num_attributes = static_cast<int32_t>(attributes_.size());
    d.num_value_inputs = static_cast<int32_t>(value_inputs_.size());
    if (infer_) d.infer = Call<InferContext, &OpBuilder::infer_>;
    if (cpu_) d.run_cpu = Call<KernelContext, &OpBuilder::cpu_>;
    if (cuda_) d.run_cuda = Call<KernelContext, &OpBuilder::cuda_>;
    if (gradient_) d.gradient = Call<GradientContext, &OpBuilder::gradient_>;
    d.not_differentiable = not_differentiable_;
    d.sharding = sharding_;
    if (flops_) d.flops = CallFlops;
    d.user = this;
    return d;
  }

 private:
  struct Operand {
    const char* name;
    std::vector<int32_t> dtypes;
    int32_t flags;
  };

  OpBuilder& Add(std::vector<Operand>& operands, const char* name, std::vector<int32_t> dtypes,
                 int32_t flags) {
    operands.push_back({name, std::move(dtypes), flags});
    return *this;
  }
  OpBuilder& Flag(int32_t flag) {
    if (!inputs_.empty()) inputs_.back().flags |= flag;
    return *this;
  }
  static std::vector<WeftOperand> Raw(const std::vector<Operand>& operands) {
    std::vector<WeftOperand> raw;
    for (const Operand& o : operands) {
      raw.push_back({o.name, o.dtypes.data(), static_cast<int32_t>(o.dtypes.size()), o.flags});
    }
    return raw;
  }
  // What crosses the ABI: no exception does.
  template <typename Fn>
  static void Guard(const WeftHost* host, WeftCall* call, Fn&& fn) {
    try {
      fn();
    } catch (const std::exception& error) {
      host->fail(call, error.what());
    } catch (...) {
      host->fail(call, "an exception that is not a std::exception");
    }
  }
  template <typename ContextType, void (*OpBuilder::*function)(ContextType&)>
  static void Call(const WeftHost* host, WeftCall* call, const void* user) {
    Guard(host, call, [&] {
      ContextType context(host, call);
      (static_cast<const OpBuilder*>(user)->*function)(context);
    });
  }
  static double CallFlops(const WeftHost* host, WeftCall* call, const void* user) {
    double flops = 0;
    Guard(host, call, [&] {
      CostContext context(host, call);
      flops = static_cast<const OpBuilder*>(user)->flops_(context);
    });
    return flops;
  }

  const char* domain_;
  const char* name_;
  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
  std::vector<WeftAttributeDeclaration> attributes_;
  std::vector<int32_t> value_inputs_;
  void (*infer_)(InferContext&) = nullptr;
  void (*cpu_)(KernelContext&) = nullptr;
  void (*cuda_)(KernelContext&) = nullptr;
  void (*gradient_)(GradientContext&) = nullptr;
  bool not_differentiable_ = false;
  const char* sharding_ = nullptr;
  double (*flops_)(CostContext&) = nullptr;
  std::vector<WeftOperand> raw_inputs_;
  std::vector<WeftOperand> raw_outputs_;
};

// The ops of one library. Lives as long as the process.
class Library {
 public:
  OpBuilder& Op(const char* domain, const char* name) { return ops_.emplace_back(domain, name); }
  const WeftOpLibrary* Describe() {
    for (OpBuilder& op : ops_) descriptors_.push_back(op.Describe());
    library_ = {descriptors_.data(), static_cast<uint32_t>(descriptors_.size())};
    return &library_;
  }

 private:
  std::deque<OpBuilder> ops_;  // descriptors point at them
  std::vector<WeftOpDescriptor> descriptors_;
  WeftOpLibrary library_{};
};

}  // namespace weft::custom

// Once per library: WEFT_OP_LIBRARY(library) { library.Op("my.domain", "MyOp")...; }
#define WEFT_OP_LIBRARY(library)                                                                 \
  static void WeftFillOpLibrary(::weft::custom::Library& library);                               \
  extern "C" __attribute__((visibility("default"))) uint32_t weft_op_library_abi_version(void) { \
    return WEFT_CUSTOM_OP_ABI_VERSION;                                                           \
  }                                                                                              \
  extern "C" __attribute__((visibility("default"))) const WeftOpLibrary* weft_op_library(void) { \
    static const WeftOpLibrary* const described = [] {                                           \
      auto* const made = new ::weft::custom::Library;                                            \
      WeftFillOpLibrary(*made);                                                                  \
      return made->Describe();                                                                   \
    }();                                                                                         \
    return described;                                                                            \
  }                                                                                              \
  static void WeftFillOpLibrary(::weft::custom::Library& library)

#endif  // __cplusplus
#endif  // WEFT_OPS_CUSTOM_OP_H_
