module holdfast.internal/holdfast

go 1.19
