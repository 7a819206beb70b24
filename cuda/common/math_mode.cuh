// How the products of a kernel are computed on tensor cores; the macro MATH of a kernel is one of these
// (docs/glossary.md).
#pragma once

enum MathMode {
  TF32X3,  // float32 operands as two tf32 terms, three products: "float32"
  FP16X3,  // float32 operands as two scaled fp16 terms, three products: "float32"
  BF16X3,  // float32 operands as two bfloat16 terms, three products, no scale: "tf32"
  FP16,    // float32 operands as one scaled fp16 term, 11 bits: "tf32"
  TF32,    // float32 operands, of which the tensor cores read 11 bits
  BF16,    // bfloat16 operands
};

constexpr bool in_fp16_terms(MathMode math) { return math == FP16X3 || math == FP16; }
constexpr bool in_terms(MathMode math) { return in_fp16_terms(math) || math == BF16X3; }  // of 16 bits
constexpr int terms_of(MathMode math) { return math == FP16X3 || math == BF16X3 ? 2 : 1; }
